package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// suggestTimeout bounds the time in which names are read for a suggestion.
const suggestTimeout = time.Second

// withNearJob adds the job that was probably meant to the error of a command about a job or task
// that does not exist. It compares the newest maxObjects jobs. Scripts do not wait for it: it is
// for people at a terminal alone.
func (a *app) withNearJob(ctx context.Context, selected *kong.Node, err error) error {
	if !a.live || a.c == nil || plimsoll.CodeOf(err) != plimsoll.CodeNotFound {
		return err
	}
	if strings.Contains(err.Error(), "did you mean") { // the server has found a name, as it does for lists
		return err
	}
	id := jobOrTaskOf(selected)
	if job, _, _, isTask := wire.SplitTaskID(id); isTask {
		id = job
	}
	if id == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, suggestTimeout)
	defer cancel()
	page, failed := a.c.JobPage(ctx, client.JobFilter{
		Scope: client.ScopeAll, Sort: client.SortSubmitted, Fields: []string{"state"}, PageSize: maxObjects,
	}, "")
	if failed != nil {
		return err // the command has failed already, and with a better reason
	}
	var names []string
	for i := range page.Jobs {
		names = append(names, page.Jobs[i].ID)
	}
	if near := plimsoll.Nearest(id, names); near != "" && !slices.Contains(names, id) {
		return fmt.Errorf("%w; did you mean job %q?", err, near)
	}
	return err
}

// jobOrTaskOf returns the only id on the command line of a command about jobs or tasks; empty if
// there is none, or there are several.
func jobOrTaskOf(selected *kong.Node) string {
	if !slices.Contains([]string{"job", "task", "explain"}, commandPath(selected)[0]) || len(selected.Positional) == 0 {
		return ""
	}
	switch ids := selected.Positional[0].Target.Interface().(type) {
	case string:
		return ids
	case []string:
		if len(ids) == 1 {
			return ids[0]
		}
	}
	return ""
}
