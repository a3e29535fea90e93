package burnin

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// maxListed limits the failures that a report or an error lists. All of them are counted.
const maxListed = 16

// joined returns the errors of the workers that failed, as one.
func joined(errs []error) error {
	var first error
	var texts []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		if first == nil {
			first = err
		}
		texts = append(texts, err.Error())
	}
	if len(texts) < 2 {
		return first
	}
	return errors.New(listed(texts, len(texts)))
}

// listed joins the first maxListed of several texts, and adds how many more of the total there are.
func listed(texts []string, total int) string {
	texts = texts[:min(len(texts), maxListed)]
	out := strings.Join(texts, "; ")
	if more := total - len(texts); more > 0 {
		out = cmp.Or(out, "none listed") + fmt.Sprintf("; and %d more", more)
	}
	return out
}
