package image

import "context"

func (w *writer) transferInspected(ctx context.Context, raw string) (report Report, opened bool, err error) {
	return Report{}, false, &FormatError{Reason: "not yet"}
}
