package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	working "github.com/plimsoll-dev/plimsoll/internal/state"
)

// A configuration file has the settings of the events under their own names, with dots or as
// mappings, or as the flag.
func TestFileHasTheSettingsOfTheEvents(t *testing.T) {
	const both = "map[b:1 c:2 service.event.ringBufferCapacity:5]"
	for file, want := range map[string]string{ // an error begins with !
		"service.event.ringBufferCapacity: 5":                 "map[service.event.ringBufferCapacity:5]",
		"event.trackingEnabled: false":                        "map[event.trackingEnabled:false]",
		"service: {event: {trackingEventsEnabled: true}}":     "map[service.event.trackingEventsEnabled:true]",
		"event: {requestCapacity: 1}":                         "map[event.requestCapacity:1]",
		"event-setting: {ringBufferCapacity: 5}":              "map[ringBufferCapacity:5]",
		"data: x":                                             "map[]",
		"event-setting: 5":                                    "!is not a mapping from settings",
		"event-setting: {event.a: 5}\nevent.a: 6":             "!\"event.a\" stands twice",
		"service: {event: {a: 1}}\nservice.event.a: 1":        "!\"service.event.a\" stands twice",
		"service: {event: {ringBufferCapacity: 1}, other: 2}": "!\"service\" in the configuration file is not",
		"service: 5": "!\"service\" in the configuration file is not",
		"service.event.ringBufferCapacity: 5\nevent-setting: {b: 1, c: 2}": both,
	} {
		resolver, err := loadFlags(strings.NewReader(file))
		if err == nil {
			for name := range resolver.(flagFile) {
				if name == "service" {
					err = fmt.Errorf("%q in the configuration file is not the name of a flag", name) // as Validate says
				}
			}
		}
		if text, refused := strings.CutPrefix(want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %s", file, err, text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		found, _ := resolver.(flagFile)[eventSettingFlag].(map[string]any)
		if got := fmt.Sprint(found); got != want {
			t.Errorf("%s gives %s, want %s", file, got, want)
		}
	}
}

// Addresses may be a list in the file, also where the flag takes them in one text. A flag of one
// value that is no text takes no list.
func TestListsInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	for text, want := range map[string]string{ // an error begins with !
		"leader: [10.0.0.1:9081, 10.0.0.2:9081]": "10.0.0.1:9081,10.0.0.2:9081",
		"leader: [10.0.0.1:9081]":                "10.0.0.1:9081",
		"leader: 10.0.0.1:9081,10.0.0.2:9081":    "10.0.0.1:9081,10.0.0.2:9081",
		"leader: [{a: 1}]":                       `!"leader" in the configuration file has an item that is no address`,
		"insecure: [true, false]":                `!"insecure" in the configuration file is a list; give one value`,
		"data: [a, b]":                           `!"data" in the configuration file is a list; give one value`,
		"event-setting: [a]":                     `!"event-setting" in the configuration file is not a mapping`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := parsed([]string{"gateway", "--config", file})
		if refused, is := strings.CutPrefix(want, "!"); is {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: %v, want %s", text, err, refused)
			}
			continue
		}
		if got := root.Gateway.Leader; err != nil || got != want {
			t.Errorf("%s gives %s and %v, want %s", text, got, err, want)
		}
	}
}

// The flags are settings too, and are checked before anything starts.
func TestFlagsAreSettingsOfTheEvents(t *testing.T) {
	for _, test := range []struct {
		flags eventFlags
		want  string // an error begins with !
	}{
		{eventFlags{}, "map[]"},
		{
			eventFlags{EventBytes: "1Gi", EventAge: "72h", EventSetting: map[string]string{"ringBufferCapacity": "5"}},
			"map[ringBufferCapacity:5 service.event.ringBufferAge:72h service.event.ringBufferBytes:1Gi]",
		},
		{eventFlags{EventBytes: "1"}, "!service.event.ringBufferBytes: is 1"},
		{eventFlags{EventSetting: map[string]string{"x": "5"}}, `!"x" is no setting`},
		{
			eventFlags{EventAge: "1h", EventSetting: map[string]string{"ringBufferAge": "5h"}},
			"!--event-age: is given beside the setting service.event.ringBufferAge",
		},
	} {
		var c working.Config
		err := test.flags.applyEvents(&c)
		if text, refused := strings.CutPrefix(test.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: %v, want %s", test.flags, err, text)
			}
		} else if err != nil || fmt.Sprint(c.Events) != test.want {
			t.Errorf("%+v: %v, %v", test.flags, c.Events, err)
		}
	}
}
