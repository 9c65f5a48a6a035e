package state

import (
	"fmt"
	"go/ast"
	"os"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/lint"
)

// The states of the two tables. A new row has the state 0.
func statesOf[S interface {
	plimsoll.JobState | plimsoll.TaskState
	Known() bool
}]() (all []S) {
	for s := S(1); s.Known(); s++ {
		all = append(all, s)
	}
	return all
}

// drawing returns a table of transitions as in DESIGN.md: a diagram, and a row for each cause.
func drawing[S plimsoll.JobState | plimsoll.TaskState](table []transition[S], all []S, name func(S) string) string {
	var diagram, rows strings.Builder
	for i := range table {
		t := &table[i]
		var begins []string
		if t.from == 0 {
			fmt.Fprintf(&diagram, "    [*] --> %s: %s\n", name(t.to), t.cause)
		}
		for _, s := range all {
			if t.from != 0 && t.allows(s) {
				begins = append(begins, name(s))
				fmt.Fprintf(&diagram, "    %s --> %s: %s\n", name(s), name(t.to), t.cause)
			}
		}
		event := ""
		if t.detail != plimsoll.DetailNone {
			event = t.change.String() + " " + t.detail.String()
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", strings.Join(begins, ", "), t.cause, name(t.to), event)
	}
	return "```mermaid\nstateDiagram-v2\n" + diagram.String() + "```\n\n" +
		"| from | cause | to | event |\n|---|---|---|---|\n" + rows.String()
}

// TestDesignDrawsTheTransitions compares the drawings in DESIGN.md with the tables.
func TestDesignDrawsTheTransitions(t *testing.T) {
	design, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, want := range map[string]string{
		"### Jobs":  drawing(jobTransitions[:], statesOf[plimsoll.JobState](), plimsoll.JobState.String),
		"### Tasks": drawing(taskTransitions[:], statesOf[plimsoll.TaskState](), plimsoll.TaskState.String),
	} {
		_, section, found := strings.Cut(string(design), "\n"+heading+"\n")
		if !found || !strings.Contains(strings.SplitN(section, "\n#", 2)[0], want) {
			t.Errorf("DESIGN.md does not draw the transitions as they are; write below %q:\n%s", heading, want)
		}
	}
}

// notEntered holds the states that no job or task ever has.
var notEntered = map[string]string{
	"JobRejected": "a job that is refused is not taken in, and has no row: see rejected.go",
	"JobResuming": "no gang gives its room back",
}

// TestEveryStateHasTransitions reads the states from the source. A state that was added there alone
// has no transition to it, or none from it.
func TestEveryStateHasTransitions(t *testing.T) {
	src, err := lint.TypeCheck("../..", ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range src.Enums() {
		switch e.Type {
		case "JobState":
			checkWays(t, e, jobTransitions[:], "jobTransitions", "JobExpired")
		case "TaskState":
			checkWays(t, e, taskTransitions[:], "taskTransitions", "")
		}
	}
}

func checkWays[S plimsoll.JobState | plimsoll.TaskState](
	t *testing.T, e lint.Enum, table []transition[S], name, last string,
) {
	t.Helper()
	for _, v := range e.Values {
		in, out := false, false
		for i := range table {
			in = in || table[i].to == S(v.Number)
			out = out || table[i].from != 0 && table[i].allows(S(v.Number))
		}
		never := notEntered[v.Name] != ""
		if never && (in || out) {
			t.Errorf("%s is entered; take it out of notEntered of this test", v.Name)
		}
		if !in && !never {
			t.Errorf("%s: no row of %s in transition.go leads to it; add one, and its line in DESIGN.md", v.Name, name)
		}
		if !out && !never && v.Name != last {
			t.Errorf("%s: no row of %s in transition.go leads from it; add it to those that do, and to DESIGN.md",
				v.Name, name)
		}
	}
}

// TestOnlyTransitionsSetStates reads the source: only the transitions and the load set the state of
// a job.
func TestOnlyTransitionsSetStates(t *testing.T) {
	src, err := lint.TypeCheck("../..", "./internal/state")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]int{}
	for _, file := range src.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			assigned, is := n.(*ast.AssignStmt)
			if !is {
				return true
			}
			for _, left := range assigned.Lhs {
				of := src.Info.TypeOf(left)
				if _, field := left.(*ast.SelectorExpr); !field || of == nil {
					continue
				}
				name := of.String()
				if strings.HasSuffix(name, "plimsoll.JobState") || strings.HasSuffix(name, "plimsoll.TaskState") {
					where, _, _ := strings.Cut(src.Place(left.Pos()), ":")
					set[where]++
				}
			}
			return true
		})
	}
	for file, n := range set {
		if file != "transition.go" && file != "load.go" {
			t.Errorf("%s sets a state in %d places; use setJobState or setTaskState, with a cause", file, n)
		}
	}
	if set["transition.go"] != 2 || set["load.go"] != 1 {
		t.Errorf("found %v; this test does not see what it looks for", set)
	}
}

// refuses reports whether a function panics with a message that contains each of some texts.
func refuses(do func(), words ...string) (refused bool) {
	defer func() {
		if said := recover(); said != nil {
			refused = true
			for _, word := range words {
				refused = refused && strings.Contains(fmt.Sprint(said), word)
			}
		}
	}()
	do()
	return false
}

// TestEveryTransitionOfAJob tries each row of the table from each state. From the row's states the
// job gets to its new state and emits its event. From all others the transition is refused, and
// nothing changes.
func TestEveryTransitionOfAJob(t *testing.T) {
	for cause := range numJobCauses {
		row := &jobTransitions[cause]
		for _, state := range append(statesOf[plimsoll.JobState](), 0) {
			s := New(Config{}, plimsoll.DefaultQueues())
			s.Begin(1000, 1)
			j := &Job{Spec: &plimsoll.JobSpec{ID: "j"}, Queue: s.Queue("root.default"), State: state, Reason: "why"}
			if !row.allows(state) {
				if !refuses(
					func() { s.setJobState(j, cause) }, "job j", row.cause,
				) || j.State != state || len(s.dirty.events) > 0 {
					t.Errorf("%q from %v: the job is %v", row.cause, state, j.State)
				}
				continue
			}
			s.setJobState(j, cause)
			if j.State != row.to || !j.dirty || !j.persist {
				t.Errorf("%q from %v: the job is %v, to be stored: %t", row.cause, state, j.State, j.dirty && j.persist)
			}
			why := ""
			if row.to == plimsoll.JobFailing || row.to == plimsoll.JobFailed {
				why = "why"
			}
			want := plimsoll.Event{
				Type: plimsoll.EventApp, Change: row.change, Detail: row.detail, Time: 1000, Object: "j", Message: why,
			}
			if got := fmt.Sprint(s.dirty.events); got != fmt.Sprint([]plimsoll.Event{want}) {
				t.Errorf("%q from %v: the events are %v", row.cause, state, got)
			}
		}
	}
}

// TestEveryTransitionOfATask does the same for tasks, and looks at the counts of their group.
func TestEveryTransitionOfATask(t *testing.T) {
	for cause := range numTaskCauses {
		row := &taskTransitions[cause]
		if row.from == 0 {
			continue // a task begins with its row
		}
		for _, state := range statesOf[plimsoll.TaskState]() {
			s := New(Config{}, plimsoll.DefaultQueues())
			s.Begin(1000, 1)
			spec := &plimsoll.JobSpec{ID: "j", Groups: []plimsoll.GroupSpec{{Name: "g", Count: 1}}}
			j := s.addJob(spec, s.Queue("root.default"), 1, false, nil, nil)
			g := &j.Groups[0]
			g.Tasks = []Task{{ID: "j.g.0", State: state, slot: -1}}
			s.recount(j)
			ref := Ref{g, 0}
			if !row.allows(state) {
				if !refuses(
					func() { s.setTaskState(ref, cause) }, "task j.g.0", row.cause,
				) || ref.Task().State != state {
					t.Errorf("%q from %v: the task is %v", row.cause, state, ref.Task().State)
				}
				continue
			}
			s.setTaskState(ref, cause)
			if g.Counts.Total() != 1 || ref.counter() == nil || *ref.counter() != 1 || !ref.Task().dirty {
				t.Errorf("%q from %v: the counts are %+v", row.cause, state, g.Counts)
			}
			if row.detail == plimsoll.DetailNone {
				continue
			}
			s.emitTask(ref, cause, "why")
			want := plimsoll.Event{
				Type: plimsoll.EventApp, Change: row.change, Detail: row.detail, Time: 1000,
				Object: "j", Reference: "j.g.0", Message: "why",
			}
			if got := fmt.Sprint(s.dirty.events); got != fmt.Sprint([]plimsoll.Event{want}) {
				t.Errorf("%q from %v: the events are %v", row.cause, state, got)
			}
		}
	}
}

// Every state of a task has a count of its own: one that counter forgot would be counted as failed.
func TestEveryTaskStateIsCounted(t *testing.T) {
	counters := map[*int32]plimsoll.TaskState{}
	g := &Group{Spec: &plimsoll.GroupSpec{Count: 1}, Tasks: make([]Task, 1)}
	for _, state := range statesOf[plimsoll.TaskState]() {
		g.Tasks[0].State = state
		c := Ref{g, 0}.counter()
		if other, taken := counters[c]; taken {
			t.Errorf("a task that is %v is counted as one that is %v; add the state to counter in task.go, and "+
				"to TaskCounts", state, other)
		}
		counters[c] = state
	}
}

// A job in a state that is never stored is not loaded: no transition leads on from there.
func TestOnlyStatesThatRestAreLoaded(t *testing.T) {
	for _, state := range statesOf[plimsoll.JobState]() {
		l := NewLoader(Config{}, plimsoll.DefaultQueues())
		groups := []plimsoll.GroupSpec{{Name: "g", Command: []string{"true"}}}
		l.JobSpec(plimsoll.JobSpec{ID: "j", Queue: "root.default", Groups: groups})
		l.JobStatus(
			plimsoll.JobStatus{ID: "j", Queue: "root.default", State: state, Killed: state == plimsoll.JobFailing},
		)
		_, err := l.End(1000)
		refused := state == plimsoll.JobCompleting || state == plimsoll.JobResuming
		if refused != (plimsoll.CodeOf(err) == plimsoll.CodeCorrupt) || !refused && err != nil {
			t.Errorf("a job that is %v: %v", state, err)
		}
	}
}
