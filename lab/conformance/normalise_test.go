//go:build linux

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// matchedTexts are the parts of messages that Ironic searches for (ironic/drivers/modules/agent_client.py of 39.0). All
// other texts of errors are for people, and are not compared.
var matchedTexts = []string{"Agent is busy", "agent_token"}

// text returns a placeholder with the parts of a message that clients search for, or "" for an empty message.
func text(message string) string {
	var parts []string
	for _, part := range matchedTexts {
		if strings.Contains(message, part) {
			parts = append(parts, part)
		}
	}
	if message == "" || strings.HasPrefix(message, "<text ") {
		return message
	}
	return "<text " + strings.Join(parts, ", ") + ">"
}

// plain converts a value to the types of package json.
func plain(value any) any { return parse(encode(value)) }

// parse parses JSON of this package.
func parse(text string) any {
	var result any
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		panic(err)
	}
	return result
}

// errorTexts replaces the texts of errors: message and details of a command's error, and faultstring and debuginfo of a
// rejected request.
func errorTexts(fields object) {
	for _, key := range []string{"message", "details", "faultstring", "debuginfo"} {
		if message, ok := fields[key].(string); ok {
			fields[key] = text(message)
		}
	}
}

var uuidPattern = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// commandID replaces the id of a command, a random UUID.
func commandID(fields object) {
	if id, ok := fields["id"].(string); ok && fields["command_status"] != nil && uuidPattern.MatchString(id) {
		fields["id"] = "<id>"
	}
}

// uuidFields are the parts of the text of a result that clients search for (ironic/drivers/modules/agent.py of 39.0).
var uuidFields = regexp.MustCompile(`\b(root_uuid|efi_system_partition_uuid)=(\S+)`)

// resultText replaces the text of a command's result if the result contains nothing else. Identifiers of partitions
// stay if they come from an image of the suite.
func resultText(fields object) {
	result, ok := fields["result"].(string)
	if !ok || len(fields) != 1 || strings.HasPrefix(result, "<text ") {
		return
	}
	name, _, _ := strings.Cut(result, ":")
	for _, found := range uuidFields.FindAllStringSubmatch(result, -1) {
		name += " " + found[1] + "=" + maskRandom(found[2])
	}
	fields["result"] = "<text of " + name + ">"
}

var fatIDPattern = regexp.MustCompile(`^[0-9A-F]{4}-[0-9A-F]{4}$`)

// partitionUUIDs replaces random identifiers in the result of standby.get_partition_uuids.
func partitionUUIDs(fields object) {
	for _, key := range []string{"efi system partition uuid", "root uuid"} {
		if id, ok := fields[key].(string); ok {
			fields[key] = maskRandom(id)
		}
	}
}

// startTime replaces the time of the agent's start, and the version of its program.
func startTime(fields object) {
	if _, ok := fields["started_at"].(float64); ok {
		fields["started_at"] = "<time>"
		if version, ok := fields["version"].(string); ok && version != "" {
			fields["version"] = "<version>"
		}
	}
}

// generatedCertificate replaces the certificate of a heartbeat.
func generatedCertificate(fields object) {
	if pem, ok := fields["agent_verify_ca"].(string); ok && strings.HasPrefix(pem, "-----BEGIN CERTIFICATE-----\n") {
		fields["agent_verify_ca"] = "<certificate>"
	}
	if version, ok := fields["agent_version"].(string); ok && version != "" {
		fields["agent_version"] = "<version>"
	}
}

var scsiDisk = regexp.MustCompile(`^/dev/sd[a-z]+$`)

// diskNames replaces the names of SCSI disks in the result of a clean step by numbers. The kernel names disks in the
// order in which it finds them, which can change.
func diskNames(result object) {
	n := 0
	for _, name := range slices.Sorted(maps.Keys(result)) {
		if scsiDisk.MatchString(name) {
			n++
			result[fmt.Sprintf("/dev/sd<%d>", n)] = result[name]
			delete(result, name)
		}
	}
}

// recordedExchange replaces what is not recorded of a reply of the agent: what differs between two runs, and texts that
// are long. The texts of errors are recorded, so that a reader can see why a command failed.
func recordedExchange(x exchange) exchange {
	x.Body = plain(x.Body)
	allowedMethods(x.Header)
	each(x.Body, func(fields object) {
		sortedSteps(fields)
		describedArguments(fields)
		commandID(fields)
		startTime(fields)
		partitionUUIDs(fields)
		if result, ok := fields["clean_result"].(object); ok {
			diskNames(result)
		}
		if result, ok := fields["command_result"].(object); ok {
			archiveNames(result, "system_logs")
		}
		if fields["command_name"] == "get_hardware_info" {
			inventoryShape(fields, "command_result")
		}
	})
	return x
}

// normaliseExchange replaces what is not compared in a reply of the agent.
func normaliseExchange(x exchange) exchange {
	x = recordedExchange(x)
	each(x.Body, func(fields object) {
		errorTexts(fields)
		if result, ok := fields["command_result"].(object); ok {
			resultText(result)
		}
	})
	if body, ok := x.Body.(string); ok && !strings.HasPrefix(x.Header["Content-Type"], "application/json") {
		x.Body = text(body)
	}
	return x
}

// normaliseRequests replaces what is not compared in requests to Ironic, and drops repetitions.
func normaliseRequests(requests []ironicRequest) []ironicRequest {
	var result []ironicRequest
	for _, r := range rootOnce(requests) {
		r.Body = plain(r.Body)
		if fields, ok := r.Body.(object); ok {
			generatedCertificate(fields)
			inspectionData(r)
		}
		if len(result) > 0 && reflect.DeepEqual(result[len(result)-1], r) {
			continue
		}
		result = append(result, r)
	}
	return result
}

// each calls f with all objects in a value, from the outside in.
func each(value any, f func(object)) {
	switch value := value.(type) {
	case object:
		f(value)
		for _, part := range value {
			each(part, f)
		}
	case []any:
		for _, part := range value {
			each(part, f)
		}
	}
}

// maskID returns "<uuid>" for an identifier of any form, "" for none, and the identifiers of the suite's images as they
// are.
func maskID(value string) string {
	if value == "" || fromImage(value) {
		return value
	}
	return "<uuid>"
}

// maskRandom replaces an identifier of a partition that is neither from an image of the suite nor derived from an MBR.
func maskRandom(id string) string {
	switch {
	case fromImage(id):
		return id
	case fatIDPattern.MatchString(id):
		return "<fat id>"
	case uuidPattern.MatchString(id):
		return "<uuid>"
	}
	return id
}

// fromImage reports whether a disk, partition or file system of the suite's images has the identifier.
func fromImage(id string) bool {
	return id == rootUUID || id == fatID || strings.HasPrefix(strings.ToUpper(id), uuidPrefix)
}

// normaliseDisk replaces what is random in a disk's partition table and file systems.
func normaliseDisk(d *diskState) *diskState {
	if d.Table != nil {
		d.Table.ID = maskID(d.Table.ID)
		for i := range d.Table.Partitions {
			d.Table.Partitions[i].UUID = maskID(d.Table.Partitions[i].UUID)
		}
	}
	for _, fields := range d.Arrays {
		arrayFields(fields)
	}
	for _, found := range append(d.Parts, d.Whole) {
		if found["TYPE"] == "linux_raid_member" {
			splitName(found, "LABEL")
		}
		for _, key := range []string{"UUID", "UUID_SUB"} {
			if value := found[key]; value != "" && found["TYPE"] != "iso9660" {
				found[key] = maskID(value)
			}
		}
	}
	return d
}
