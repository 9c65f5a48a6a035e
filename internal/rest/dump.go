package rest

import (
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// DumpPath is where the whole state is, outside of the other routes. As in YuniKorn, the path that
// it had before leads there.
const DumpPath = "/debug/fullstatedump"

// dump answers with everything that the other routes have, of one revision.
func (a *reading) dump() error {
	a.body = append(a.body, `{"timestamp":`...)
	a.body = strconv.AppendInt(a.body, a.records.Time(), 10)
	for _, part := range []struct {
		name string
		add  func() error
	}{
		{"partitions", a.partitions},
		{"applications", a.allApplications},
		{"appHistory", a.applicationHistory},
		{"nodes", a.nodesOfPartitions},
		{"clusterInfo", a.clusters},
		{"containerHistory", a.containerHistory},
		{"queues", a.rootQueues},
		{"config", a.configFile},
		{"placementRules", a.rulesOfPartitions},
	} {
		a.body = append(append(append(a.body, `,"`...), part.name...), `":`...)
		if err := part.add(); err != nil {
			return err
		}
	}
	a.body = append(a.body, '}')
	return nil
}

// allApplications adds the applications that are kept, also those that have ended.
func (a *reading) allApplications() error {
	var states []plimsoll.JobState
	for _, set := range []string{setActive, setRejected, setCompleted} {
		states = append(states, statesOf(set)...)
	}
	return a.addApplications("", states)
}

// nodesOfPartitions adds the nodes of the one partition.
func (a *reading) nodesOfPartitions() error {
	a.body = append(a.body, `[{"partitionName":"`+partition+`","nodesInfo":`...)
	if err := a.nodes(); err != nil {
		return err
	}
	a.body = append(a.body, "}]"...)
	return nil
}

// rootQueues adds the list of the root queues, of which there is one.
func (a *reading) rootQueues() error {
	a.body = append(a.body, '[')
	if err := a.queues(); err != nil {
		return err
	}
	a.body = append(a.body, ']')
	return nil
}

// configFile adds the configured queues, and null if none were set.
func (a *reading) configFile() error {
	queues, has, err := a.queueConfig()
	if err != nil {
		return err
	}
	if !has {
		a.body = append(a.body, "null"...)
		return nil
	}
	return a.add(config.QueueFileForYuniKorn(&queues))
}

// rulesOfPartitions adds the placement rules of the one partition.
func (a *reading) rulesOfPartitions() error {
	a.body = append(a.body, '[')
	if err := a.placementRules(); err != nil {
		return err
	}
	a.body = append(a.body, ']')
	return nil
}
