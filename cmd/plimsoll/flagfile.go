package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// flagFile holds flag values from the file that --config names. The command line and the
// environment take precedence over it.
type flagFile map[string]any

// loadFlags is a kong.ConfigurationLoader.
func loadFlags(r io.Reader) (kong.Resolver, error) {
	data, err := io.ReadAll(io.LimitReader(r, config.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	values, err := config.ParseFlags(data)
	return flagFile(values), err
}

// Validate refuses names that are no flag of any role.
func (f flagFile) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, command := range app.Leaves(false) {
		for _, flag := range command.Flags {
			known[flag.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !known[name] {
			return fmt.Errorf("%q in the configuration file is not the name of a flag", name)
		}
	}
	return nil
}

// Resolve returns the value of a flag, or nil. In a mapping such as capacity an amount may be a
// number, and several words may be a list. The value may be empty where the name is enough.
func (f flagFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	m, ok := f[flag.Name].(map[string]any)
	if !ok {
		return f[flag.Name], nil
	}
	texts := map[string]any{}
	for name, value := range m {
		texts[name] = flagText(value)
	}
	return texts, nil
}

func flagText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = flagText(v[i])
		}
		return strings.Join(words, ",")
	}
	return fmt.Sprint(value)
}
