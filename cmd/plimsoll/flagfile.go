package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll"
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
	if err == nil {
		err = gatherEventSettings(values)
	}
	return flagFile(values), err
}

// eventSettingFlag is the name of the flag for settings of the events.
const eventSettingFlag = "event-setting"

// gatherEventSettings moves the settings of the events, which may stand under their own names, to
// the flag for them. Names with dots may be written as mappings within each other.
func gatherEventSettings(values map[string]any) error {
	found := map[string]any{}
	if given, has := values[eventSettingFlag]; has {
		named, ok := given.(map[string]any)
		if !ok {
			return fmt.Errorf("%q in the configuration file is not a mapping from settings to values", eventSettingFlag)
		}
		maps.Copy(found, named)
	}
	take := func(name string, value any) error {
		if _, twice := found[name]; twice {
			return fmt.Errorf("%q stands twice in the configuration file; leave one out", name)
		}
		found[name] = value
		return nil
	}
	for _, prefix := range []string{plimsoll.EventSettingPrefix, plimsoll.YuniKornEventPrefix} {
		for name, value := range below(values, strings.Split(strings.TrimSuffix(prefix, "."), ".")) {
			if err := take(prefix+name, value); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if strings.HasPrefix(name, prefix) {
				if err := take(name, values[name]); err != nil {
					return err
				}
				delete(values, name)
			}
		}
	}
	if len(found) > 0 {
		values[eventSettingFlag] = found
	}
	return nil
}

// below takes the mapping at a path out of the values; nil if there is none.
func below(values map[string]any, path []string) map[string]any {
	inner, ok := values[path[0]].(map[string]any)
	if !ok {
		return nil
	}
	taken := inner
	if len(path) > 1 {
		if taken = below(inner, path[1:]); len(inner) > 0 {
			return taken // what else stands there is no setting, and is refused
		}
	}
	delete(values, path[0])
	return taken
}

// Validate refuses names that are no flag of any role. A historian also has the flags of commands
// that call a gateway.
func (f flagFile) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, flag := range app.Flags {
		known[flag.Name] = flag != app.HelpFlag && flag.Name != "version"
	}
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

// addressFlags take several addresses in one text, separated by commas. In the file they may be a
// list.
var addressFlags = []string{"leader", "peers", "server"}

// Resolve returns the value of a flag, or nil. In a mapping such as capacity an amount may be a
// number, and several words may be a list. The value may be empty where the name is enough.
func (f flagFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	switch value := f[flag.Name].(type) {
	case map[string]any:
		texts := map[string]any{}
		for name, inner := range value {
			texts[name] = flagText(inner)
		}
		return texts, nil
	case []any:
		switch {
		case slices.Contains(addressFlags, flag.Name):
			return addresses(flag.Name, value)
		case !flag.IsSlice() && !flag.IsMap(): // some mappings may be lists of pairs
			return nil, fmt.Errorf("%q in the configuration file is a list; give one value", flag.Name)
		}
	}
	return f[flag.Name], nil
}

// addresses returns a list of addresses as the flag takes them.
func addresses(name string, list []any) (string, error) {
	texts := make([]string, len(list))
	for i := range list {
		text, ok := list[i].(string)
		if !ok {
			return "", fmt.Errorf("%q in the configuration file has an item that is no address", name)
		}
		texts[i] = text
	}
	return strings.Join(texts, ","), nil
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
