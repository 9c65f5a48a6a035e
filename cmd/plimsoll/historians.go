package main

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type historiansCmd struct {
	List   historiansListCmd   `cmd:"" default:"1" help:"List the registered historians, and how far they have come."`
	Remove historiansRemoveCmd `cmd:"" help:"End the registration of a historian, so that no events are held back for it."`
}

// Help is the detail of the help text.
func (historiansCmd) Help() string {
	return example("plimsoll events historians", "plimsoll events historians remove h1")
}

type historiansListCmd struct{ formatFlag }

// Help is the detail of the help text.
func (historiansListCmd) Help() string {
	return example("plimsoll events historians list") +
		"\n\nThe events that a registered historian lacks are held back for it, within the setting " +
		"service.event.ringBufferHeldBytes. A historian that does not report for 72 hours is no longer registered."
}

// Run lists the registered historians.
func (cmd *historiansListCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	all, err := c.Historians(ctx)
	if err != nil {
		return err
	}
	return cmd.print(a, viewHistorians(&all), func(o *output) {
		if len(all.Historians) == 0 {
			a.notes.printf("no historian is registered\n")
			return
		}
		historianTable(o, a.now(), &all)
	})
}

// historianTable prints the registered historians.
func historianTable(o *output, now time.Time, all *client.RegisteredHistorians) {
	rows := make([][]string, len(all.Historians))
	for i := range all.Historians {
		h := &all.Historians[i]
		behind, missed := all.Behind(h)
		rows[i] = []string{h.Name, fmt.Sprint(h.Next), fmt.Sprint(behind), fmt.Sprint(missed), ago(now, h.Heard)}
	}
	columns(o, []string{"HISTORIAN", "NEXT EVENT", "BEHIND", "GONE UNREAD", "HEARD"}, rows)
}

type historianView struct {
	Name       string  `json:"name"`
	Instance   string  `json:"instance"`
	Next       uint64  `json:"next"`
	Behind     uint64  `json:"behind"`
	GoneUnread uint64  `json:"gone_unread"`
	Heard      *string `json:"heard"`
}

// viewHistorians returns the registered historians in JSON.
func viewHistorians(all *client.RegisteredHistorians) []historianView {
	views := make([]historianView, len(all.Historians))
	for i := range all.Historians {
		h := &all.Historians[i]
		behind, missed := all.Behind(h)
		views[i] = historianView{h.Name, h.InstanceUUID, h.Next, behind, missed, stamp(h.Heard)}
	}
	return views
}

type historiansRemoveCmd struct {
	Name string `arg:"" help:"Name of the historian."`
}

// Help is the detail of the help text.
func (historiansRemoveCmd) Help() string {
	return example("plimsoll events historians remove h1") +
		"\n\nA historian that still runs registers again within a minute."
}

// Run ends the registration of a historian.
func (cmd *historiansRemoveCmd) Run(ctx context.Context, a *app) error {
	if err := plimsoll.ValidateID("name", cmd.Name); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := c.RemoveHistorian(ctx, cmd.Name); err != nil {
		return err
	}
	a.notes.printf("no events are held back for %s any more\n", cmd.Name)
	return nil
}
