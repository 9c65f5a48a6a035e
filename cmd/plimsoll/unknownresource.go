package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// checkResources warns of each resource that a group asks for and no node has. With strict it
// refuses the first one. It skips the resources that every node has, and those that are lent at
// times, so most jobs cost no further call.
func (a *app) checkResources(ctx context.Context, c *client.Client, spec *plimsoll.JobSpec, strict bool) error {
	var known []string
	warned := map[string]bool{}
	for i := range spec.Groups {
		for _, name := range spec.Groups[i].Resources.Names() {
			if plimsoll.StandardResource(name) || spec.Groups[i].Resources[name] == 0 || warned[name] {
				continue
			}
			if known == nil {
				var err error
				if known, err = nodeResources(ctx, c); err != nil {
					return err
				}
			}
			if slices.Contains(known, name) {
				continue
			}
			warned[name] = true
			field, text := fmt.Sprintf("groups[%d].resources.%s", i, name), plimsoll.NoResource(name, known)
			if strict {
				return plimsoll.Invalid(field, "%s; leave out --strict to let the group wait for such a node", text)
			}
			a.notes.printf("warning: %s: %s; the group waits until a node with it joins\n", field, text)
		}
	}
	return nil
}

// nodeResources returns the names of the resources that nodes have: those of the root queue.
func nodeResources(ctx context.Context, c *client.Client) ([]string, error) {
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	known := slices.Clone(plimsoll.StandardResources[:])
	for i := range queues {
		if queues[i].Path == plimsoll.RootQueue {
			known = append(known, queues[i].Max.Names()...)
		}
	}
	return known, nil
}
