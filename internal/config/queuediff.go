package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// QueueChange is a difference between two trees of queues.
type QueueChange struct {
	Queue  string `json:"queue"`           // path of the queue; empty for a setting of the whole tree
	Change string `json:"change"`          // added, removed or changed
	Field  string `json:"field,omitempty"` // of the queue file; empty for a queue that is added or removed
	From   any    `json:"from,omitempty"`  // value before; absent if there was none
	To     any    `json:"to,omitempty"`    // value after; absent if there is none
}

// DiffQueues returns what a new tree of queues changes, in the order of the paths. Queues that jobs
// made and those that drain are no part of a configuration, and are left out.
func DiffQueues(before, after *plimsoll.QueueConfig) ([]QueueChange, error) {
	was, err := fieldsOfTree(before)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOfTree(after)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	var changes []QueueChange
	for _, path := range slices.Sorted(maps.Keys(all)) {
		switch {
		case was[path] == nil:
			changes = append(changes, QueueChange{Queue: path, Change: "added"})
		case is[path] == nil:
			changes = append(changes, QueueChange{Queue: path, Change: "removed"})
			continue
		}
		changes = append(changes, diffFields(path, was[path], is[path])...)
	}
	return changes, nil
}

func diffFields(path string, was, is map[string]json.RawMessage) (changes []QueueChange) {
	all := maps.Clone(is)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, was)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if string(was[field]) == string(is[field]) {
			continue
		}
		c := QueueChange{Queue: path, Change: "changed", Field: field}
		if value, had := was[field]; had {
			c.From = value
		}
		if value, has := is[field]; has {
			c.To = value
		}
		changes = append(changes, c)
	}
	return changes
}

// String prints a difference on one line.
func (c QueueChange) String() string {
	path := c.Queue
	if path == "" {
		path = "all queues"
	}
	switch {
	case c.Field == "":
		return path + " is " + c.Change
	case c.From == nil:
		return fmt.Sprintf("%s: %s is %s", path, c.Field, c.To)
	case c.To == nil:
		return fmt.Sprintf("%s: %s was %s", path, c.Field, c.From)
	}
	return fmt.Sprintf("%s: %s was %s, is %s", path, c.Field, c.From, c.To)
}

// fieldsOfTree returns the fields of each queue as they are printed, by path. Those of the
// partition have the empty path.
func fieldsOfTree(root *plimsoll.QueueConfig) (map[string]map[string]json.RawMessage, error) {
	all := map[string]map[string]json.RawMessage{}
	partition := queueFileOf(root, asAmounts).Partitions[0]
	top := partition.Queues[0]
	partition.Queues = nil
	var err error
	if all[""], err = fieldsOf(partition); err != nil {
		return nil, err
	}
	return all, addFields(all, top.Name, &top, root)
}

func addFields(all map[string]map[string]json.RawMessage, path string, e *queueEntry, q *plimsoll.QueueConfig) error {
	alone := *e
	alone.Queues = nil
	fields, err := fieldsOf(alone)
	if err != nil {
		return err
	}
	all[path] = fields
	at := 0
	for i := range q.Queues {
		if q.Queues[i].Dynamic {
			continue // it is not printed
		}
		below := &e.Queues[at]
		at++
		if q.Queues[i].Draining {
			continue
		}
		if err := addFields(all, path+"."+below.Name, below, &q.Queues[i]); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf returns the printed fields of a value, without its name and its queues.
func fieldsOf(v any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("compare queues: %w", err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("compare queues: %w", err)
	}
	delete(fields, "name")
	delete(fields, "queues")
	return fields, nil
}
