package qos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// ledgerFile is the encoded form of a ledger.
type ledgerFile struct {
	Version  int
	Sequence uint64
	At       int64
	Given    int64 `json:",omitempty"`
	Rules    []*ruleState
	Held     []*hold
	Leaving  []*leaving
	Failed   []*failure

	Unstopped []*failure `json:",omitempty"`
	Recent    []change   `json:",omitempty"`
}

const ledgerVersion = 1

// Encode returns the ledger as JSON; equal ledgers give equal bytes.
func (l *Ledger) Encode() ([]byte, error) {
	f := ledgerFile{Version: ledgerVersion, Sequence: l.sequence, At: l.at, Given: l.given, Recent: l.recent}
	for _, name := range slices.Sorted(maps.Keys(l.rules)) {
		f.Rules = append(f.Rules, l.rules[name])
	}
	f.Held, f.Leaving = inOrder(l.held), inOrder(l.leaving)
	f.Failed, f.Unstopped = inOrder(l.failed), inOrder(l.unstopped)
	data, err := json.Marshal(&f)
	if err != nil {
		return nil, fmt.Errorf("encode the ledger: %w", err)
	}
	return data, nil
}

func inOrder[V any](m map[Key]V) []V {
	var all []V
	for _, k := range slices.SortedFunc(maps.Keys(m), compareKeys) {
		all = append(all, m[k])
	}
	return all
}

// DecodeLedger reads the output of Encode. Samples are numbered anew, and the time for which a
// metric is missing is counted anew, since the sampler has started anew too. The next sample
// decides whether an eviction that was begun has been done. Otherwise its task would count as
// leaving for ever.
func DecodeLedger(data []byte) (*Ledger, error) {
	var f ledgerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("decode the ledger: %w", err)
	}
	if f.Version != ledgerVersion {
		return nil, plimsoll.Errorf(
			plimsoll.CodeInternal, "the ledger was written by another version (%d, this one reads %d)", f.Version,
			ledgerVersion,
		)
	}
	l := NewLedger()
	l.at, l.given, l.recent = f.At, f.Given, f.Recent
	for _, r := range f.Rules {
		if r != nil {
			r.Above = min(max(r.Above, 0), plimsoll.MaxRuleSamples)
			r.Below = min(max(r.Below, 0), plimsoll.MaxRuleSamples)
			l.rules[r.Rule] = r
		}
	}
	for _, h := range f.Held {
		if h != nil {
			h.Wait = min(max(h.Wait, 0), max(h.Longest, 0))
			l.held[h.key()] = h
		}
	}
	for _, e := range f.Leaving {
		if e != nil {
			e.unconfirmed = !e.Told
			l.leaving[Key{e.Task, e.Attempt}] = e
		}
	}
	addFailures(l.failed, f.Failed)
	addFailures(l.unstopped, f.Unstopped)
	return l, nil
}

func addFailures(into map[Key]*failure, all []*failure) {
	for _, e := range all {
		if e != nil {
			e.Count = min(max(e.Count, 0), maxFailureCount)
			into[Key{e.Task, e.Attempt}] = e
		}
	}
}
