package plimsoll_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// The defaults are those of the event design, section Configuration. The bounds by bytes and time
// are ours.
func TestEventSettingsHaveTheDefaultsOfTheDesign(t *testing.T) {
	s := plimsoll.DefaultEventSettings()
	want := []plimsoll.EventSettingValue{
		{"service.event.trackingEventsEnabled", "true"},
		{"service.event.ringBufferCapacity", "100000"},
		{"service.event.ringBufferBytes", "256Mi"},
		{"service.event.ringBufferAge", "0s"},
		{"service.event.ringBufferHeldBytes", "64Mi"},
		{"service.event.RESTResponseSize", "10000"},
		{"service.event.requestEventsEnabled", "false"},
		{"service.event.requestStoreCapacity", "1000"},
	}
	if got := s.Values(); !slices.Equal(got, want) || !s.Collecting() {
		t.Errorf("the defaults are %v, want %v", got, want)
	}
}

// "all boolean values will be converted into a boolean using ParseBool", "integer value that can be
// converted into a 32-bit integer using ParseUint": every other value is refused, and changes
// nothing. YuniKorn takes the default then, and only logs it.
func TestEventSettingsAreReadAsTheDesignSays(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{ // an empty want: refused
		{"service.event.trackingEventsEnabled", "false", "false"},
		{"service.event.trackingEventsEnabled", "0", "false"},
		{"service.event.trackingEventsEnabled", "F", "false"},
		{"service.event.trackingEventsEnabled", "TRUE", "true"},
		{"service.event.trackingEventsEnabled", "yes", ""},
		{"service.event.trackingEventsEnabled", "", ""},
		{"service.event.trackingEventsEnabled", "2", ""},
		{"service.event.requestEventsEnabled", "1", "true"},
		{"service.event.ringBufferCapacity", "0", "0"},
		{"service.event.ringBufferCapacity", "1", "1"},
		{"service.event.ringBufferCapacity", "4294967295", "4294967295"},
		{"service.event.ringBufferCapacity", "4294967296", ""},
		{"service.event.ringBufferCapacity", "-1", ""},
		{"service.event.ringBufferCapacity", "+1", ""},
		{"service.event.ringBufferCapacity", " 1", ""},
		{"service.event.ringBufferCapacity", "1e3", ""},
		{"service.event.ringBufferCapacity", "0x10", ""},
		{"service.event.ringBufferCapacity", "99999999999999999999", ""},
		{"service.event.requestStoreCapacity", "0", "0"},
		{"service.event.requestStoreCapacity", "7", "7"},
		{"service.event.RESTResponseSize", "5", "5"},
		{"service.event.RESTResponseSize", "0", "10000"}, // the design has no meaning for 0; YuniKorn's
		{"service.event.ringBufferBytes", "1Mi", "1Mi"},
		{"service.event.ringBufferBytes", "0", "256Mi"},
		{"service.event.ringBufferBytes", "1023Ki", ""},
		{"service.event.ringBufferBytes", "2Ti", ""},
		{"service.event.ringBufferHeldBytes", "1Gi", "1Gi"},
		{"service.event.ringBufferHeldBytes", "0", "0"},
		{"service.event.ringBufferHeldBytes", "1Ki", ""},
		{"service.event.ringBufferHeldBytes", "2Ti", ""},
		{"service.event.ringBufferHeldBytes", "much", ""},
		{"service.event.ringBufferAge", "72h", "72h0m0s"},
		{"service.event.ringBufferAge", "0", "0s"},
		{"service.event.ringBufferAge", "-1s", ""},
		{"service.event.ringBufferAge", "3", ""},
		{"ringBufferCapacity", "8", "8"},
		{"event.ringBufferCapacity", "9", "9"},
		{"event.trackingEnabled", "false", "false"},
		{"event.requestCapacity", "10", "10"},
		{"event.RESTResponseSize", "11", "11"},
		{"event.maxStreams", "1", ""},
		{"event.", "1", ""},
		{"", "1", ""},
		{"service.event.trackingEnabled", "true", ""}, // YuniKorn's name, with the design's prefix
	} {
		s := plimsoll.DefaultEventSettings()
		before := s.Values()
		err := s.Set(map[string]string{test.name: test.text})
		if test.want == "" {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !slices.Equal(s.Values(), before) {
				t.Errorf("%s=%q gives %v, and %v", test.name, test.text, err, s.Values())
			}
			continue
		}
		has := func(v plimsoll.EventSettingValue) bool { return v.Value == test.want }
		if err != nil || !slices.ContainsFunc(s.Values(), has) {
			t.Errorf("%s=%q gives %v, %v; want %s", test.name, test.text, s.Values(), err, test.want)
		}
	}
}

// An error names the setting, and the one that was meant.
func TestEventSettingsNameWhatIsWrong(t *testing.T) {
	s := plimsoll.DefaultEventSettings()
	for values, want := range map[string]string{
		"ringBuferCapacity=1":                               `did you mean "ringBufferCapacity"?`,
		"service.event.ringbuffercapacity=1":                `did you mean "service.event.ringBufferCapacity"?`,
		"ringBufferCapacity=x":                              "service.event.ringBufferCapacity",
		"ringBufferCapacity=1 event.ringBufferCapacity=1":   "is given twice",
		"ringBufferCapacity=" + strings.Repeat("9", 10_000): "…",
	} {
		given := map[string]string{}
		for _, word := range strings.Fields(values) {
			name, value, _ := strings.Cut(word, "=")
			given[name] = value
		}
		if err := s.Set(given); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.80s gives %.300v, want %s", values, err, want)
		}
	}
}

// A value of a role's file is set when it was not given before. A value that was set live stays
// until then, also when another process with the same file leads.
func TestGivenSettingsAreSetOnce(t *testing.T) {
	s := plimsoll.DefaultEventSettings()
	give := func(values map[string]string) {
		t.Helper()
		if err := s.Give(values); err != nil {
			t.Fatal(err)
		}
	}
	file := map[string]string{"service.event.ringBufferCapacity": "5000", "event.trackingEnabled": "F"}
	give(file)
	if s.RingBufferCapacity != 5000 || s.TrackingEventsEnabled {
		t.Fatalf("the file is not set: %+v", s)
	}
	if err := s.Set(map[string]string{"ringBufferCapacity": "70"}); err != nil {
		t.Fatal(err)
	}
	give(file)
	if s.RingBufferCapacity != 70 {
		t.Errorf("the same file undid what was set live: %+v", s)
	}
	give(map[string]string{"ringBufferCapacity": "05000", "trackingEventsEnabled": "true"})
	if s.RingBufferCapacity != 70 || !s.TrackingEventsEnabled {
		t.Errorf("a file with one other value gives %+v", s)
	}
	give(nil)
	give(file)
	if s.RingBufferCapacity != 5000 || len(s.Given) != 2 {
		t.Errorf("a value that was taken out and put back gives %+v", s)
	}
	before := fmt.Sprint(s)
	if err := s.Give(map[string]string{"ringBufferCapacity": "1", "RESTResponseSize": "x"}); err == nil ||
		fmt.Sprint(s) != before {
		t.Errorf("a wrong file gives %v and %+v", err, s)
	}
}

// A setting that Equal forgets would never be stored, and one that Values forgets cannot be seen.
func TestEventSettingsAreComparedWhole(t *testing.T) {
	var same plimsoll.EventSettings
	fill.Fill(&same, fill.Options{})
	same.RingBufferAge = 7 * time.Second
	for _, field := range fill.Ignored(fill.Options{}, func(s *plimsoll.EventSettings) string {
		return fmt.Sprint(s.Equal(&same), s.Values(), s.Given)
	}) {
		t.Errorf("EventSettings.Equal and Values do not look at %s; add it to eventSettings", field)
	}
}
