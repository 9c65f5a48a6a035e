package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// shelf is a policyBook that records its sets.
type shelf struct {
	*testing.T
	*policyBook
	log  *logBuffer
	sets []string // names in each applied set, without the one that is always there
}

func newShelf(t *testing.T, path string) *shelf {
	t.Helper()
	s := &shelf{T: t, log: &logBuffer{}}
	s.policyBook = newPolicyBook(path, func(set []plimsoll.Policy) {
		var names []string
		for _, p := range set[:len(set)-1] {
			names = append(names, p.Name())
		}
		s.sets = append(s.sets, strings.Join(names, " "))
	}, eventsTo(s.log).Trouble)
	s.open()
	return s
}

// expect checks the sets that were applied since the last call.
func (s *shelf) expect(want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, s.sets); diff != "" {
		s.Errorf("sets that were applied (-want +got):\n%s", diff)
	}
	s.sets = nil
}

func closing(name string) plimsoll.Policy {
	return plimsoll.Policy{Action: &plimsoll.Action{Name: name, CoolDown: time.Minute, DisableScheduling: true}}
}

func actions(names ...string) (refs []plimsoll.PolicyRef) {
	for _, name := range names {
		refs = append(refs, plimsoll.PolicyRef{Kind: plimsoll.PolicyAction, Name: name})
	}
	return refs
}

// A complete list replaces the known policies; until then the known ones stay. Later changes count
// at once. A change without effect is not applied.
func TestAListOfPoliciesReplacesThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), policyFile)
	s := newShelf(t, path)
	s.expect("")
	s.begin()
	s.take([]plimsoll.Policy{closing("b")}, nil, false)
	s.expect()
	s.take([]plimsoll.Policy{closing("a")}, nil, true)
	s.expect("a b")
	s.take([]plimsoll.Policy{closing("c")}, actions("a"), false)
	s.expect("b c")
	s.take(nil, nil, false) // a message about tasks
	s.take([]plimsoll.Policy{closing("c")}, actions("gone before"), false)
	s.expect()
	s.begin() // a new session, which breaks before its list is complete
	s.take([]plimsoll.Policy{closing("b")}, nil, false)
	s.begin()
	s.take([]plimsoll.Policy{closing("c"), closing("b")}, nil, true)
	s.expect()
	changed := closing("b")
	changed.Action.CoolDown = time.Hour
	s.take([]plimsoll.Policy{changed}, nil, false)
	s.expect("b c")
	s.begin()
	s.take(nil, nil, true)
	s.expect("")
}

// An agent that restarts without a gateway continues with the policies that it knew.
func TestPoliciesSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), policyFile)
	s := newShelf(t, path)
	s.begin()
	s.take([]plimsoll.Policy{closing("a"), closing("b")}, nil, true)
	s.begin() // the network fails during a list
	s.take([]plimsoll.Policy{closing("c")}, nil, false)

	s = newShelf(t, path)
	s.expect("a b")
	s.begin()
	s.take([]plimsoll.Policy{closing("b"), closing("a")}, nil, true)
	s.expect()
	if s.log.String() != "" {
		t.Errorf("it complains: %s", s.log)
	}
}

// A damaged file counts as empty, and the next list replaces it.
func TestPoliciesThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), policyFile)
	if err := os.WriteFile(path, []byte("\xff\xff\xff"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newShelf(t, path)
	s.expect("")
	if !strings.Contains(s.log.String(), "cannot be read") {
		t.Errorf("it does not say so: %s", s.log)
	}
	s.begin()
	s.take([]plimsoll.Policy{closing("a")}, nil, true)
	newShelf(t, path).expect("a")
}

// With a read-only directory policies still apply, and they are written with the next change.
func TestPoliciesThatCannotBeKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later", policyFile)
	s := newShelf(t, path)
	s.begin()
	s.take([]plimsoll.Policy{closing("a")}, nil, true)
	s.expect("", "a")
	if !strings.Contains(s.log.String(), "not kept on disk") {
		t.Errorf("it does not say so: %s", s.log)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	s.take([]plimsoll.Policy{closing("b")}, nil, false)
	newShelf(t, path).expect("a b")
}

// A policy of an unknown kind, from a newer server, does not affect other policies.
func TestAPolicyOfAnUnknownKind(t *testing.T) {
	s := newShelf(t, filepath.Join(t.TempDir(), policyFile))
	s.begin()
	s.take([]plimsoll.Policy{{}, closing("a"), closing("Not A Name")}, nil, true)
	s.expect("", "a")
	if n := strings.Count(s.log.String(), "left out"); n != 2 {
		t.Errorf("%d were left out with a word, want 2:\n%s", n, s.log)
	}
}

// An attempt of unknown worth is spared even by policies that allow everything, and no other is: no
// job can have its queue.
func TestTasksOfUnknownWorthAreSpared(t *testing.T) {
	registry, err := qos.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	all := plimsoll.Policy{TaskQOS: &plimsoll.TaskQOS{
		Name: "all", Allowed: []string{"a"},
		Match: []plimsoll.Requirement{{Scope: plimsoll.ScopeOwner, Not: true, Values: []string{"nobody"}}},
	}}
	compiled := qos.Compile([]plimsoll.Policy{closing("a"), all, unknownTaskPolicy()}, registry, nil, qos.Options{})
	asked := func(task nodeqos.Task) (allowed []string, exempt string) {
		return compiled.Allowed(
			&qos.Task{ID: task.ID, Class: task.Class, Priority: task.Priority, Owner: task.Owner, Queue: task.Queue},
		)
	}
	if allowed, exempt := asked(
		(&entry{attempt: 1, phase: phaseLive}).qosTask("j.g.0"),
	); len(allowed) != 0 || exempt == "" {
		t.Errorf("what is not known may be acted on by %v (%s)", allowed, exempt)
	}
	known := &entry{attempt: 1, phase: phaseLive, worth: &worth{Class: "guaranteed", Queue: "root.a"}}
	if allowed, exempt := asked(known.qosTask("j.g.0")); len(allowed) != 1 || exempt != "" {
		t.Errorf("what is known may be acted on by %v (%s)", allowed, exempt)
	}
	if err := plimsoll.ValidateQueuePath("queue", unknownQueue); err == nil {
		t.Error("there can be a queue of that name")
	}
}
