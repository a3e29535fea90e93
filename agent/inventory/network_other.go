//go:build !linux

package inventory

import (
	"context"
	"errors"
	"fmt"
)

func (kernelNetwork) facts(context.Context) (map[string]linkFacts, error) {
	return nil, fmt.Errorf("list links and addresses: %w", errors.ErrUnsupported)
}
