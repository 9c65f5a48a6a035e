package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// The size of each attack: the number of commands, how many at a time, and their bytes.
const (
	attackCommands = 48
	attackAtOnce   = 12
	attackBytes    = 3_000_000
)

// longTraits returns the largest possible number of traits, with the largest number of words.
func longTraits() map[string]plimsoll.Trait {
	traits := map[string]plimsoll.Trait{}
	for i := range plimsoll.MaxTraits {
		words := make([]string, plimsoll.MaxTraitWords)
		for k := range words {
			words[k] = long(plimsoll.MaxPlacementName, k)
		}
		traits[long(plimsoll.MaxPlacementName, i)] = plimsoll.Trait{Words: words}
	}
	return traits
}

// constrained returns a job that is valid but for its size, most of which is in constraints.
func constrained(id string) *plimsoll.JobSpec {
	spec := job(id, 1)
	one := spec.Groups[0]
	for i := range plimsoll.MaxSelectors {
		label := plimsoll.Selector{Label: long(plimsoll.MaxLabelKey, i) + "=" + long(plimsoll.MaxLabelValue, i)}
		one.Constraints.Near, one.Constraints.Far = append(
			one.Constraints.Near, label,
		), append(one.Constraints.Far, label)
	}
	spec.Groups = nil
	for i := 0; i == 0 || proto.Size(wire.JobSpecToProto(spec)) < attackBytes; i++ {
		one.Name = fmt.Sprintf("g%d", i)
		spec.Groups = append(spec.Groups, one)
	}
	return spec
}

// described returns a valid node with the largest possible facts.
func described(id string) *plimsoll.Node {
	n := &plimsoll.Node{ID: id, Incarnation: 1, Capacity: plimsoll.Resources{"cpu": 1000}}
	n.Facts.Traits, n.Facts.Networks = longTraits(), map[string]bool{}
	for i := range plimsoll.MaxNodeNetworks {
		n.Facts.Networks[long(plimsoll.MaxPlacementName, i)] = true
	}
	return n
}

// labelled returns a set of valid policies.
func labelled() []*pb.Policy {
	pairs := map[string]string{}
	for i := range plimsoll.MaxLabels {
		pairs[long(plimsoll.MaxLabelKey, i)] = long(plimsoll.MaxLabelValue, i)
	}
	var set []*pb.Policy
	for size := 0; size < attackBytes; {
		m := wire.PolicyToProto(
			&plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{Name: fmt.Sprintf("p%d", len(set)), Labels: pairs}},
		)
		set, size = append(set, m), size+proto.Size(m)
	}
	return set
}

// attack sends many commands, several at a time, and returns the errors of their replies.
func (l *leader) attack(commands int, command func(i int) *pb.Command) []error {
	l.t.Helper()
	errs := make([]error, commands)
	place := make(chan struct{}, attackAtOnce)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			place <- struct{}{}
			_, errs[i] = l.Do(context.Background(), command(i))
			<-place
		})
	}
	all.Wait()
	return errs
}

// No command of a user or an agent ends a leadership. A command that does not fit in a batch of the
// store is refused with its size and the limit, also in a dry run. The leader keeps its epoch.
func TestCommandsThatFillABatchAreRefusedAndTheLeaderGoesOn(t *testing.T) {
	spec, node := wire.JobSpecToProto(constrained("large")), wire.NodeToProto(described("n"))
	policies := labelled()
	named := func(i int) string { return fmt.Sprintf("large-%d", i) }
	ofSpec := func(i int) *pb.JobSpec {
		s := &pb.JobSpec{Id: named(i), Owner: spec.GetOwner(), Queue: spec.GetQueue(), Groups: spec.GetGroups()}
		return s
	}
	attacks := []struct {
		name    string
		field   string // that the refusal names
		fits    bool   // the store that comes with Plimsoll has room for it
		command func(i int) *pb.Command
	}{
		{"submits of 3 MB in constraints", "groups[", false, func(i int) *pb.Command {
			return &pb.Command{Kind: &pb.Command_SubmitJob{SubmitJob: &pb.SubmitJobRequest{Spec: ofSpec(i)}}}
		}},
		{"dry runs of the same", "groups[", false, func(i int) *pb.Command {
			return &pb.Command{Kind: &pb.Command_PlaceJob{PlaceJob: &pb.PlaceJobRequest{Spec: ofSpec(i)}}}
		}},
		{"plans for the same", "groups[", false, func(i int) *pb.Command {
			return &pb.Command{
				Kind: &pb.Command_PlanMoves{PlanMoves: &pb.PlanMovesRequest{Spec: ofSpec(i), Group: "g0", Limit: 1}},
			}
		}},
		{"policies", "policies", false, func(int) *pb.Command {
			return &pb.Command{
				Kind: &pb.Command_ApplyPolicies{ApplyPolicies: &pb.ApplyPoliciesRequest{Policies: policies}},
			}
		}},
		{"trials of policies", "policies", false, func(int) *pb.Command {
			return &pb.Command{
				Kind: &pb.Command_ApplyPolicies{
					ApplyPolicies: &pb.ApplyPoliciesRequest{Policies: policies, DryRun: true},
				},
			}
		}},
		{"facts of nodes", "facts", true, func(i int) *pb.Command {
			n := &pb.Node{Id: named(i), Incarnation: 1, Capacity: node.GetCapacity(), Facts: node.GetFacts()}
			return &pb.Command{Kind: &pb.Command_RegisterNode{RegisterNode: &pb.RegisterNodeRequest{Node: n}}}
		}},
	}
	for name, limits := range map[string]store.Limits{"pebble": {}, "etcd": etcdLimits} {
		t.Run(name, func(t *testing.T) {
			commands := testrun.Count(attackAtOnce, attackCommands/2, attackCommands)
			if name != "pebble" {
				commands = attackAtOnce
			}
			l := lead(t, Config{}, openStore(t, vfs.NewMem(), limits))
			defer l.stop()
			l.must(submit(job("before", 1)))
			epoch := l.Latest().Epoch()
			for _, a := range attacks {
				for _, err := range l.attack(commands, a.command) {
					if a.fits && name == "pebble" {
						if err != nil {
							t.Fatalf("%s: %v", a.name, err)
						}
						continue
					}
					if err == nil || !strings.Contains(err.Error(), a.field) ||
						!strings.Contains(err.Error(), "bytes") {
						t.Fatalf(
							"%s: the reply is %.300v, want a refusal that names %s and its bytes", a.name, err, a.field,
						)
					}
				}
			}
			l.must(submit(job("after", 1)))
			snapshot, err := l.Barrier(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if snapshot.Epoch() != epoch {
				t.Fatalf("the leader's epoch was %d and is %d", epoch, snapshot.Epoch())
			}
			if n := snapshot.Len(wire.KindJobSpec); n != 2 {
				t.Fatalf("%d specifications are stored, want those of the two small jobs", n)
			}
		})
	}
}
