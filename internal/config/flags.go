package config

import (
	"fmt"

	"github.com/goccy/go-yaml"
)

// ParseFlags reads a file with a process's settings. It is a mapping from the name of a flag to a
// value, a list, or a mapping of plain values.
func ParseFlags(data []byte) (map[string]any, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("the file is larger than %d bytes", MaxFileBytes)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalWithOptions(data, &values, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("the file is not a mapping from flags to values: %w", err)
	}
	return values, nil
}
