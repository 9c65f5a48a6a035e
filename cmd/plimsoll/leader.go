package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

type leaderCmd struct {
	Show     leaderShowCmd     `cmd:"" default:"withargs" help:"Show which coordinator leads, and which stand by."`
	StepDown leaderStepDownCmd `cmd:"" help:"Let the leader hand leadership over to a coordinator that stands by."`
}

// Help is the detail of the help text.
func (leaderCmd) Help() string { return example("plimsoll leader", "plimsoll leader step-down") }

type leaderShowCmd struct{ formatFlag }

// Help is the detail of the help text.
func (leaderShowCmd) Help() string {
	return example("plimsoll leader show", "plimsoll leader show -o json") +
		"\n\nA coordinator that stands by is shown if it follows the leader. One on the same directory needs --peers for that."
}

// Run shows the leader.
func (cmd *leaderShowCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	l, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	return cmd.print(a, viewLeader(&l), func(o *output) { leaderTable(o, a.now(), &l) })
}

// leaderTable prints the leader and the coordinators that stand by.
func leaderTable(o *output, now time.Time, l *client.Leader) {
	rows := [][]string{
		{l.Address, "leader", fmt.Sprint(l.Epoch), ago(now, l.Since.UnixNano()), fmt.Sprint(l.Revision), "-"},
	}
	for _, s := range l.Standbys {
		rows = append(rows, []string{
			s.Address, "standby", "-", "-", fmt.Sprint(s.Revision),
			plimsoll.FormatQuantity(plimsoll.Memory, int64(s.BehindBytes)),
		})
	}
	columns(o, []string{"COORDINATOR", "ROLE", "EPOCH", "SINCE", "REVISION", "BEHIND"}, rows)
}

type leaderView struct {
	Address  string        `json:"address"`
	Epoch    uint64        `json:"epoch"`
	Since    *string       `json:"since"`
	Revision uint64        `json:"revision"`
	Standbys []standbyView `json:"standbys"`
}

type standbyView struct {
	Address     string `json:"address"`
	Revision    uint64 `json:"revision"`
	BehindBytes uint64 `json:"behind_bytes"`
}

// viewLeader returns the leader in JSON.
func viewLeader(l *client.Leader) leaderView {
	v := leaderView{
		Address: l.Address, Epoch: l.Epoch, Since: stamp(l.Since.UnixNano()), Revision: l.Revision,
		Standbys: make([]standbyView, len(l.Standbys)),
	}
	for i, s := range l.Standbys {
		v.Standbys[i] = standbyView(s)
	}
	return v
}

type leaderStepDownCmd struct{}

// Help is the detail of the help text.
func (leaderStepDownCmd) Help() string {
	return example("plimsoll leader step-down") +
		"\n\nThe leader answers what it was asked before. Gateways keep further changes until the next leader has begun, " +
		"so none fails. If no other coordinator takes over, the same one leads again after a few seconds."
}

// nextLeaderTimeout bounds the wait for the next leader.
const nextLeaderTimeout = 30 * time.Second

// Run lets the leader step down, and waits for the next one.
func (*leaderStepDownCmd) Run(ctx context.Context, a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	before, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	if err := c.StepDown(ctx, before.Epoch); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nextLeaderTimeout)
	defer cancel()
	for {
		now, err := c.Leader(ctx)
		switch {
		case err == nil && now.Epoch > before.Epoch:
			a.notes.printf("%s leads with epoch %d\n", now.Address, now.Epoch)
			return nil
		case ctx.Err() != nil:
			return plimsoll.Errorf(plimsoll.CodeUnavailable,
				"the leader at %s has stepped down, and no other began within %s; look at its log and at those of the standbys",
				strings.TrimSpace(before.Address), nextLeaderTimeout)
		case err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable:
			return err
		}
		sleepFor(ctx, leaderPause)
	}
}

// leaderPause is the pause between two questions for the next leader.
const leaderPause = 100 * time.Millisecond

func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
