package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// largePolicy returns a set of one policy that takes about a megabyte.
func largePolicy(name string) []plimsoll.Policy {
	values := make([]string, 1000)
	for i := range values {
		values[i] = fmt.Sprintf("%0120d", i)
	}
	qos := &plimsoll.TaskQOS{Name: name}
	for range 8 {
		qos.Match = append(qos.Match, plimsoll.Requirement{Scope: plimsoll.ScopeOwner, Values: values})
	}
	return []plimsoll.Policy{{TaskQOS: qos}}
}

// A thousand policies of a megabyte would end the coordinator, every gateway and every agent.
func TestPoliciesAreBoundedInBytes(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	for i := range 8 {
		id := b.send(&engine.ApplyPolicies{Policies: largePolicy(fmt.Sprint("p", i))})
		b.settle()
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
	}
	refused := b.send(&engine.ApplyPolicies{Policies: largePolicy("one-more")})
	b.settle()
	b.wantRefused(refused, plimsoll.CodeExhausted, "policies: all together would take ", "at most 8388608")
	b.crash()
	refused = b.send(&engine.ApplyPolicies{Policies: largePolicy("one-more")})
	b.settle()
	b.wantRefused(refused, plimsoll.CodeExhausted, "policies: all together would take ")
	ref := plimsoll.PolicyRef{Kind: plimsoll.PolicyTaskQOS, Name: "p0"}
	b.send(&engine.DeletePolicy{Ref: ref})
	taken := b.send(&engine.ApplyPolicies{Policies: largePolicy("one-more")})
	b.settle()
	if err := b.reply(taken); err != nil {
		t.Fatal(err)
	}
}

// manyFacts returns a registration with so many bytes of attributes.
func manyFacts(id string, bytes int) *engine.RegisterNode {
	do := machine(id, 1000)
	do.Node.Attributes = map[string]string{}
	for i := 0; i < bytes; i += 1000 {
		do.Node.Attributes[fmt.Sprint("a", i)] = strings.Repeat("x", 1000)
	}
	return do
}

// The records of all nodes are bounded in bytes. A known node can register again if its record does
// not grow, and a store over the bound is loaded.
func TestNodesAreBoundedInBytes(t *testing.T) {
	b := newBench(t, state.Config{MaxNodeBytes: 100_000}, state.Limits{})
	for i := range 4 {
		id := b.send(manyFacts(fmt.Sprint("n", i), 20_000))
		b.settle()
		if err := b.reply(id); err != nil {
			t.Fatal(err)
		}
	}
	refused := b.send(manyFacts("n4", 20_000))
	grows := b.send(manyFacts("n0", 60_000))
	b.settle()
	b.wantRefused(
		refused, plimsoll.CodeExhausted, "nodes: what is known of all nodes takes ", "at most 100000",
		"fewer attributes",
	)
	b.wantRefused(grows, plimsoll.CodeExhausted, "nodes: what is known of all nodes takes ")
	b.cfg.MaxNodeBytes = 50_000
	b.crash()
	again := b.send(manyFacts("n0", 20_000))
	refused = b.send(manyFacts("n4", 1_000))
	b.settle()
	if err := b.reply(again); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(refused, plimsoll.CodeExhausted, "at most 50000")
}
