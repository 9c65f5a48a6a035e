package main

import (
	"context"

	"github.com/plimsoll-dev/plimsoll"
)

type eventsConfigCmd struct {
	Show eventsShowCmd `cmd:"" default:"1" help:"Print the settings of the events."`
	Set  eventsSetCmd  `cmd:"" help:"Change settings of the events, all that are named or none."`
}

// Help is the detail of the help text.
func (eventsConfigCmd) Help() string {
	return example("plimsoll events config", "plimsoll events config set ringBufferCapacity=500000")
}

type eventsShowCmd struct{ formatFlag }

// Help is the detail of the help text.
func (eventsShowCmd) Help() string { return example("plimsoll events config show") }

// Run prints the settings.
func (cmd *eventsShowCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	settings, err := c.EventSettings(ctx)
	if err != nil {
		return err
	}
	return printEventSettings(a, cmd.formatFlag, &settings)
}

type eventsSetCmd struct {
	Settings map[string]string `arg:"" help:"Settings and their new values." placeholder:"NAME=VALUE"`
	formatFlag
}

// Help is the detail of the help text.
func (eventsSetCmd) Help() string {
	return example(
		"plimsoll events config set ringBufferCapacity=500000",
		"plimsoll events config set trackingEventsEnabled=false",
		"plimsoll events config set service.event.ringBufferAge=72h service.event.ringBufferBytes=1Gi",
	) + "\n\nThe settings hold at every gateway at once. See docs/reference/event-settings.md."
}

// Run changes the settings.
func (cmd *eventsSetCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	settings, err := c.SetEventSettings(ctx, cmd.Settings)
	if err != nil {
		return err
	}
	return printEventSettings(a, cmd.formatFlag, &settings)
}

// printEventSettings prints the settings.
func printEventSettings(a *app, format formatFlag, s *plimsoll.EventSettings) error {
	values := map[string]string{}
	var rows [][]string
	for _, v := range s.Values() {
		values[v.Name] = v.Value
		rows = append(rows, []string{v.Name, v.Value})
	}
	return format.print(a, values, func(o *output) { columns(o, []string{"SETTING", "VALUE"}, rows) })
}
