package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// maxObjects is the most names of jobs that are compared with an unknown one.
const maxObjects = 1000

// checkObject fails for an object that does not exist and has no events. The error suggests names.
func checkObject(ctx context.Context, c *client.Client, object string) error {
	if known, err := isObject(ctx, c, object); known || err != nil {
		return err
	}
	names, err := objectNames(ctx, c)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("there is no job, task, node or queue %q, and no event is about one", object)
	if slices.Contains(names, object) {
		return nil
	}
	if near := plimsoll.Nearest(object, names); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return &plimsoll.Error{Code: plimsoll.CodeNotFound, Field: "--object", Msg: text}
}

// isObject reports whether a job or task has the id.
func isObject(ctx context.Context, c *client.Client, id string) (bool, error) {
	if plimsoll.ValidateID("object", id) != nil {
		return false, nil
	}
	if _, isTask, err := findTask(ctx, c, lifetime{id: id}); isTask || err != nil {
		return isTask, err
	}
	_, err := c.Job(ctx, id)
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// objectNames returns the names of nodes, queues and some jobs.
func objectNames(ctx context.Context, c *client.Client) ([]string, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range nodes {
		names = append(names, nodes[i].Node.ID)
	}
	for i := range queues {
		names = append(names, queues[i].Path)
	}
	jobs := 0
	for s, err := range c.Jobs(ctx, client.JobFilter{PageSize: maxObjects}) {
		if err != nil {
			return nil, err
		}
		if names, jobs = append(names, s.ID), jobs+1; jobs == maxObjects {
			break
		}
	}
	return names, nil
}
