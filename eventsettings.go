package plimsoll

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EventSettings are the settings of the events (event design, "Configuration"). The leader keeps
// them in a record, from which every gateway has them.
type EventSettings struct {
	// RequestEventsEnabled turns the events for resource managers on.
	RequestEventsEnabled bool
	// RequestStoreCapacity is how many of them are kept for each resource manager until it has
	// acknowledged them; 0 turns them off too.
	RequestStoreCapacity uint32
	// TrackingEventsEnabled turns the collection of events on.
	TrackingEventsEnabled bool
	// RingBufferCapacity is how many events are kept; 0 turns the collection off too.
	RingBufferCapacity uint32
	// RingBufferBytes bounds the kept events in their packed form, in bytes. The design lets the
	// implementation choose count, time or both as the bound.
	RingBufferBytes int64
	// RingBufferAge is how long an event is kept; 0: as long as there is room.
	RingBufferAge time.Duration
	// RingBufferHeldBytes bounds the events that are kept while a registered historian lacks some
	// of them, in their packed form, in bytes. They are then kept beyond the other bounds. 0:
	// historians hold nothing back.
	RingBufferHeldBytes int64
	// RESTResponseSize bounds the events in one answer of /ws/v1/events/batch.
	RESTResponseSize uint32

	// Given holds the settings that a role's flags or file gave last, as NAME=VALUE, by name. See
	// Give.
	Given []string
}

// Bounds of EventSettings.RingBufferBytes. RingBufferHeldBytes has the same, and may be 0.
const (
	defaultEventBytes = 256 << 20
	leastEventBytes   = 1 << 20
	mostEventBytes    = 1 << 40
	defaultHeldBytes  = 64 << 20 // of EventSettings.RingBufferHeldBytes
)

// DefaultEventSettings returns the defaults of the event design.
func DefaultEventSettings() EventSettings {
	return EventSettings{
		TrackingEventsEnabled: true, RequestStoreCapacity: 1000, RingBufferCapacity: 100_000,
		RingBufferBytes: defaultEventBytes, RingBufferHeldBytes: defaultHeldBytes, RESTResponseSize: 10_000,
	}
}

// Collecting reports whether events are collected.
func (s *EventSettings) Collecting() bool { return s.TrackingEventsEnabled && s.RingBufferCapacity > 0 }

// TellingRequests reports whether events are made for resource managers.
func (s *EventSettings) TellingRequests() bool {
	return s.RequestEventsEnabled && s.RequestStoreCapacity > 0
}

// EventSettingPrefix begins the name of each setting, and YuniKornEventPrefix that of each name of
// YuniKorn.
const (
	EventSettingPrefix  = "service.event."
	YuniKornEventPrefix = "event."
)

// eventSetting is a setting with its name behind EventSettingPrefix, YuniKorn's behind
// YuniKornEventPrefix (empty: it has none), its reader and its writer.
type eventSetting struct {
	name, yuniKorn string
	set            func(s *EventSettings, field, text string) error
	get            func(s *EventSettings) string
}

// eventSettings are all settings, in the order in which they are shown.
var eventSettings = [...]eventSetting{
	flagSetting("trackingEventsEnabled", "trackingEnabled", func(s *EventSettings) *bool {
		return &s.TrackingEventsEnabled
	}),
	countSetting("ringBufferCapacity", "ringBufferCapacity", false, func(s *EventSettings) *uint32 {
		return &s.RingBufferCapacity
	}),
	{"ringBufferBytes", "", setRingBytes, func(s *EventSettings) string {
		return FormatQuantity(Memory, s.RingBufferBytes)
	}},
	{"ringBufferAge", "", setRingAge, func(s *EventSettings) string { return s.RingBufferAge.String() }},
	{"ringBufferHeldBytes", "", setHeldBytes, func(s *EventSettings) string {
		return FormatQuantity(Memory, s.RingBufferHeldBytes)
	}},
	countSetting("RESTResponseSize", "RESTResponseSize", true, func(s *EventSettings) *uint32 {
		return &s.RESTResponseSize
	}),
	flagSetting("requestEventsEnabled", "", func(s *EventSettings) *bool { return &s.RequestEventsEnabled }),
	countSetting("requestStoreCapacity", "requestCapacity", false, func(s *EventSettings) *uint32 {
		return &s.RequestStoreCapacity
	}),
}

// flagSetting makes a setting that strconv.ParseBool reads.
func flagSetting(name, yuniKorn string, value func(*EventSettings) *bool) eventSetting {
	return eventSetting{name, yuniKorn, func(s *EventSettings, field, text string) error {
		v, err := strconv.ParseBool(text)
		if err != nil {
			return Invalid(field, "%q is neither true nor false; write one of these", Shorten(text))
		}
		*value(s) = v
		return nil
	}, func(s *EventSettings) string { return strconv.FormatBool(*value(s)) }}
}

// countSetting makes a setting that strconv.ParseUint reads as 32 bits. If orDefault is set, 0
// stands for the default.
func countSetting(name, yuniKorn string, orDefault bool, value func(*EventSettings) *uint32) eventSetting {
	return eventSetting{name, yuniKorn, func(s *EventSettings, field, text string) error {
		v, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return Invalid(field, "%q is not a whole number from 0 to 4294967295; write one", Shorten(text))
		}
		if *value(s) = uint32(v); v == 0 && orDefault {
			usual := DefaultEventSettings()
			*value(s) = *value(&usual)
		}
		return nil
	}, func(s *EventSettings) string { return strconv.FormatUint(uint64(*value(s)), 10) }}
}

func setRingBytes(s *EventSettings, field, text string) error {
	v, err := ParseQuantity(Memory, text)
	if err != nil {
		return Invalid(field, "%s", err)
	}
	if v == 0 {
		v = defaultEventBytes
	}
	if v < leastEventBytes || v > mostEventBytes {
		return Invalid(field, "is %s; give an amount from 1Mi to 1Ti, or 0 for the default, 256Mi", Shorten(text))
	}
	s.RingBufferBytes = v
	return nil
}

func setHeldBytes(s *EventSettings, field, text string) error {
	v, err := ParseQuantity(Memory, text)
	if err != nil {
		return Invalid(field, "%s", err)
	}
	if v != 0 && (v < leastEventBytes || v > mostEventBytes) {
		return Invalid(field, "is %s; give an amount from 1Mi to 1Ti, or 0 to hold nothing back", Shorten(text))
	}
	s.RingBufferHeldBytes = v
	return nil
}

func setRingAge(s *EventSettings, field, text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return Invalid(field, "%q is not a length of time; write one such as 72h, or 0 for no bound", Shorten(text))
	}
	s.RingBufferAge = v
	return nil
}

// EventSettingNames returns the names of all settings.
func EventSettingNames() []string {
	names := make([]string, len(eventSettings))
	for i := range eventSettings {
		names[i] = EventSettingPrefix + eventSettings[i].name
	}
	return names
}

// findEventSetting returns the setting with a name: the design's, YuniKorn's, or the design's
// without its prefix.
func findEventSetting(name string) (*eventSetting, error) {
	short, full := strings.CutPrefix(name, EventSettingPrefix)
	theirs, yuniKorn := strings.CutPrefix(name, YuniKornEventPrefix)
	for i := range eventSettings {
		if s := &eventSettings[i]; s.name == short || yuniKorn && !full && s.yuniKorn == theirs && theirs != "" {
			return s, nil
		}
	}
	names := EventSettingNames()
	if !full {
		for i := range names {
			names[i] = eventSettings[i].name
		}
	}
	return nil, Invalid("name", "%q is no setting of the events; %s", Shorten(name), Suggest(Shorten(name), names))
}

// Set changes settings, all or none. The keys are names of the design, also without
// EventSettingPrefix, or names of YuniKorn.
func (s *EventSettings) Set(values map[string]string) error {
	named, err := eventValues(values)
	if err != nil {
		return err
	}
	out := *s
	for i := range eventSettings {
		if text, has := named[eventSettings[i].name]; has {
			if err := eventSettings[i].set(&out, EventSettingPrefix+eventSettings[i].name, text); err != nil {
				return err
			}
		}
	}
	*s = out
	return nil
}

// eventValues returns values by the design's names without their prefix.
func eventValues(values map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		found, err := findEventSetting(name)
		if err != nil {
			return nil, err
		}
		if _, twice := out[found.name]; twice {
			return nil, Invalid(EventSettingPrefix+found.name, "is given twice; leave one out")
		}
		out[found.name] = values[name]
	}
	return out, nil
}

// Give changes the settings that a role's flags or file give, all or none. A value that was given
// before is not set again: so one that was set live since then stays, until another value is given.
func (s *EventSettings) Give(values map[string]string) error {
	checked := *s
	if err := checked.Set(values); err != nil {
		return err
	}
	named, err := eventValues(values)
	if err != nil {
		return err
	}
	var given []string
	fresh := map[string]string{}
	for i := range eventSettings {
		name := eventSettings[i].name
		if _, has := named[name]; !has {
			continue
		}
		value := eventSettings[i].get(&checked)
		if given = append(given, name+"="+value); !slices.Contains(s.Given, name+"="+value) {
			fresh[name] = value
		}
	}
	slices.Sort(given)
	s.Given = given
	return s.Set(fresh)
}

// EventSettingValue is a setting as a text that Set reads.
type EventSettingValue struct{ Name, Value string }

// Values returns the settings with their full names, in the order in which they are shown.
func (s *EventSettings) Values() []EventSettingValue {
	values := make([]EventSettingValue, len(eventSettings))
	for i := range eventSettings {
		values[i] = EventSettingValue{EventSettingPrefix + eventSettings[i].name, eventSettings[i].get(s)}
	}
	return values
}

// Equal reports whether both have the same settings, and were given the same.
func (s *EventSettings) Equal(o *EventSettings) bool {
	return slices.Equal(s.Values(), o.Values()) && slices.Equal(s.Given, o.Given)
}
