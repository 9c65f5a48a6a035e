package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/history/trace"
	"github.com/plimsoll-dev/plimsoll/internal/simulate"
)

// asItWas is the name of the policy that changes nothing.
const asItWas = "as it was"

// usualHistories are the files of a history that is not named, in the directories that roles take
// without --data.
var usualHistories = []string{
	filepath.Join("plimsoll-data", "history", "events.db"), filepath.Join("plimsoll-data", "historian", "events.db"),
}

// runHistory simulates a window of a history: as it was, and with the changes of the flags.
func (cmd *simulateCmd) runHistory(ctx context.Context, a *app, configs []simulate.Config) (err error) {
	path, err := cmd.historyFile()
	if err != nil {
		return err
	}
	reader := sqlite.OpenReader(path)
	defer func() { err = errors.Join(err, reader.Close()) }()
	t, err := trace.Read(ctx, reader, trace.Query{
		Since: func(newest time.Time) (time.Time, error) { return instant("--history", cmd.History, newest) },
		Span:  cmd.Until,
	})
	if err != nil {
		return err
	}
	more := *t.Workload
	more.Nodes = slices.Clone(more.Nodes)
	if err := cmd.addNodes(&more); err != nil {
		return err
	}
	if len(t.Workload.Nodes) == 0 {
		return plimsoll.Errorf(plimsoll.CodeNotFound, "the history has no nodes in this time; choose another one")
	}
	until := t.Until - t.From
	base := configs[0]
	base.Name, base.Queues, base.Changes, base.Chain, base.Until = asItWas, t.Queues, t.Changes, nil, until
	for i := range configs {
		c := &configs[i]
		if c.Until = until; i == 0 && cmd.Queues == "" {
			c.Name, c.Queues, c.Changes = "the queues of then", t.Queues, t.Changes
		}
		c.Name = cmd.changes(c.Name, len(more.Nodes)-len(t.Workload.Nodes))
	}
	if cmd.Queues == "" && cmd.Placement == "" && len(more.Nodes) == len(t.Workload.Nodes) {
		configs = configs[1:] // the first one changes nothing
	}
	configs = append([]simulate.Config{base}, configs...)
	return cmd.report(a, configs, func(i int) *simulate.Workload {
		if i == 0 {
			return t.Workload
		}
		return &more
	})
}

// changes names a policy with all that it changes.
func (cmd *simulateCmd) changes(queues string, nodes int) string {
	parts := []string{queues}
	if cmd.Placement != "" {
		parts = append(parts, cmd.Placement)
	}
	if nodes > 0 {
		parts = append(parts, fmt.Sprintf("%s more", plural(nodes, "node")))
	}
	return strings.Join(parts, ", ")
}

// historyFile returns the path of the history.
func (cmd *simulateCmd) historyFile() (string, error) {
	if cmd.HistoryFile != "" {
		return cmd.HistoryFile, nil
	}
	for _, path := range usualHistories {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", plimsoll.Invalid("--history-file", "is missing, and there is no %s; name the file events.db of the "+
		"historian, or history/events.db in --data of dev", strings.Join(usualHistories, " or "))
}
