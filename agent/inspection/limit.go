package inspection

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
)

// maxBodyBytes limits the data of an inspection: the default of Ironic's option [api]max_json_body_size_inspection. A
// larger body is answered with status 413, and the inspection ends by a timeout.
const maxBodyBytes = 16 << 20

// minArchiveBytes is the smallest size, in bytes, in which the log archive is worth sending.
const minArchiveBytes = 64 << 10

// truncatedKey is the key of a list with what was left out, so that the data fit into maxBodyBytes.
const truncatedKey = "truncated"

// body returns the data as JSON, with at most limit bytes. If there is more, it truncates the members of the log
// archive, and then leaves out the largest data of optional collectors. It notes that under truncatedKey.
func (i *inspection) body(ctx context.Context, limit int) ([]byte, error) {
	parts := make(map[string]json.RawMessage, len(i.data))
	for key, value := range i.data {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode inspection data: %s: %w", key, err)
		}
		parts[key] = text
	}
	if bodySize(parts) > limit {
		if err := i.reduce(ctx, parts, limit); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("encode inspection data: %w", err)
	}
	return text, nil
}

// reduce makes the parts of the data fit into limit bytes. It returns an error if the parts that Ironic needs do not.
func (i *inspection) reduce(ctx context.Context, parts map[string]json.RawMessage, limit int) error {
	var notes []string
	note := func(format string, args ...any) error {
		notes = append(notes, fmt.Sprintf(format, args...))
		i.Log.Warn("inspection data truncated", "limit", limit, "what", notes[len(notes)-1])
		text, err := json.Marshal(notes)
		parts[truncatedKey] = text
		return err
	}
	logs := parts[logsKey]
	delete(parts, logsKey)
	for _, key := range optionalKeys(parts) {
		if bodySize(parts) <= limit {
			break
		}
		size := len(parts[key])
		delete(parts, key)
		if err := note("%s: all %d bytes left out", key, size); err != nil {
			return err
		}
	}
	if size := bodySize(parts); size > limit {
		return fmt.Errorf("encode inspection data: got %d bytes without optional data, want at most %d", size, limit)
	}
	if len(logs) == 0 {
		return nil
	}
	// Base64 takes four bytes for three. The key, its quotes and the notes need space, too.
	space := int64(limit-bodySize(parts)-notesBytes) / 4 * 3
	if space < minArchiveBytes {
		return note("%s: all %d bytes left out", logsKey, len(logs))
	}
	archive, truncated, err := i.Journal.ArchiveWithin(ctx, space, i.System, i.logMembers(ctx)...)
	if err != nil {
		return note("%s: all %d bytes left out: %v", logsKey, len(logs), err)
	}
	text, err := json.Marshal(base64.StdEncoding.EncodeToString(archive))
	if err != nil {
		return err
	}
	parts[logsKey] = text
	return note("%s: %d members truncated, see the member %s", logsKey, len(truncated), truncatedKey)
}

// notesBytes is the space for the notes about what was truncated.
const notesBytes = 4 << 10

// optionalKeys returns the keys of the parts without which Ironic can inspect the machine, the largest part first.
func optionalKeys(parts map[string]json.RawMessage) []string {
	var keys []string
	for _, c := range Collectors()[1:] {
		for _, key := range c.Keys {
			if _, ok := parts[key]; ok {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(len(parts[b]), len(parts[a])) })
	return keys
}

// bodySize returns the size of the JSON object with the parts, in bytes.
func bodySize(parts map[string]json.RawMessage) int {
	size := len("{}")
	for key, value := range parts {
		size += len(key) + len(`"":,`) + len(value)
	}
	return size
}
