package main

import (
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	working "github.com/plimsoll-dev/plimsoll/internal/state"
)

// eventFlags are the settings of the events that a coordinator gives. In the file that --config
// names they also stand under their own names.
type eventFlags struct {
	EventSetting map[string]string `help:"Setting of the events, such as service.event.ringBufferCapacity=200000; repeat it for more. A value that was given before is not set again, so that a live change stays. See also plimsoll events config." placeholder:"NAME=VALUE"`
	EventBytes   string            `help:"Most memory of the events that are kept, such as 1Gi: the setting ringBufferBytes. Default: 256Mi." placeholder:"AMOUNT"`
	EventAge     string            `help:"How long an event is kept, such as 72h: the setting ringBufferAge. Default: as long as there is room." placeholder:"DURATION"`
}

// applyEvents sets the settings in a configuration.
func (f *eventFlags) applyEvents(c *working.Config) error {
	values := map[string]string{}
	maps.Copy(values, f.EventSetting)
	for _, own := range []struct{ flag, name, value string }{
		{"--event-bytes", "ringBufferBytes", f.EventBytes}, {"--event-age", "ringBufferAge", f.EventAge},
	} {
		if own.value == "" {
			continue
		}
		name := plimsoll.EventSettingPrefix + own.name
		if values[name] != "" || values[own.name] != "" {
			return plimsoll.Invalid(own.flag, "is given beside the setting %s; leave one out", name)
		}
		values[name] = own.value
	}
	var checked plimsoll.EventSettings
	if err := checked.Set(values); err != nil {
		return err //nolint:wrapcheck // it names the setting
	}
	c.Events = values
	return nil
}
