package fleetjson

import (
	"encoding/json"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// decisionJSON is a decision with all its inputs.
type decisionJSON struct {
	Name     string               `json:"name"`
	At       int64                `json:"at"`
	Seed     uint64               `json:"seed,string"`
	Server   string               `json:"server"`
	Score    float64              `json:"score"`
	Looked   int                  `json:"looked"`
	Batches  int                  `json:"batches"`
	Chain    placement.Expression `json:"chain"`
	Settings placement.Settings   `json:"settings"`
	Request  json.RawMessage      `json:"request"`
	Names    []string             `json:"names"`
	Servers  []recordedServerJSON `json:"servers"`
	Spreads  []map[string]int32   `json:"spreads,omitempty"`
	Fewest   []int32              `json:"fewest,omitempty"`
	Places   map[string]string    `json:"places,omitempty"`
	InOrder  bool                 `json:"inOrder,omitempty"`
}

type recordedServerJSON struct {
	Record    json.RawMessage    `json:"record"`
	Free      plimsoll.Resources `json:"free"`
	Instances uint32             `json:"instances"`
	Uncapped  uint32             `json:"uncapped,omitempty"`
	Owned     uint32             `json:"owned,omitempty"`
	Sick      bool               `json:"sick,omitempty"`
	Hits      []uint32           `json:"hits,omitempty"`
}

// WriteDecision writes a decision with its inputs: the chain and its settings, the request, and the
// servers of the last batch as they were.
func WriteDecision(d *placement.DecisionRecord) ([]byte, error) {
	request, err := WriteRequest(&d.Request)
	if err != nil {
		return nil, err
	}
	out := decisionJSON{
		Name: d.Name, At: d.At, Seed: d.Seed, Server: d.Server, Score: d.Score, Looked: d.Looked, Batches: d.Batches,
		Chain:    d.Chain,
		Settings: d.Settings, Request: request, Names: d.Names, Spreads: d.Spreads,
		Fewest: d.Fewest, Places: d.Places, InOrder: d.InOrder,
	}
	for i := range d.Servers {
		s := &d.Servers[i]
		record, err := WriteServer(&s.Server)
		if err != nil {
			return nil, err
		}
		out.Servers = append(
			out.Servers, recordedServerJSON{record, s.Free, s.Instances, s.Uncapped, s.Owned, s.Sick, s.Hits},
		)
	}
	data, err := json.MarshalIndent(&out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write a decision: %w", err)
	}
	return data, nil
}

// ReadDecision reads a decision that WriteDecision wrote. Replay finds out whether it makes sense.
func ReadDecision(data []byte) (*placement.DecisionRecord, error) {
	var in decisionJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, unreadable(err)
	}
	out := &placement.DecisionRecord{
		Name: in.Name, At: in.At, Seed: in.Seed, Server: in.Server, Score: in.Score, Looked: in.Looked,
		Batches: in.Batches, Chain: in.Chain,
		Settings: in.Settings, Names: in.Names, Spreads: in.Spreads, Fewest: in.Fewest, Places: in.Places,
		InOrder: in.InOrder,
	}
	var err error
	if len(in.Request) > 0 {
		if out.Request, err = ReadRequest(in.Request); err != nil {
			return nil, unreadable(err)
		}
	}
	for i := range in.Servers {
		s := &in.Servers[i]
		var server placement.Server
		if len(s.Record) > 0 {
			if server, err = ReadServer(s.Record); err != nil {
				return nil, unreadable(err)
			}
		}
		out.Servers = append(out.Servers, placement.RecordedServer{
			Server: server, Free: s.Free, Instances: s.Instances, Uncapped: s.Uncapped, Owned: s.Owned, Sick: s.Sick,
			Hits: s.Hits,
		})
	}
	return out, nil
}

func unreadable(err error) error {
	return plimsoll.Invalid("decision", "cannot be read: %s; give a file that an export wrote", err)
}
