package nodeqos

import (
	"bytes"
	"fmt"
	"os"

	"github.com/goccy/go-yaml"
)

// LoadMetrics reads user-defined metrics from a YAML file.
func LoadMetrics(path string) ([]Metric, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	return parseMetrics(path, data)
}

func parseMetrics(name string, data []byte) ([]Metric, error) {
	var list []map[string]any
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return make([]Metric, 0, len(list)), nil
}
