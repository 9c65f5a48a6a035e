package placement_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// A text that is not a rule is refused at once, with the compiler's message on one line.
func TestRuleErrors(t *testing.T) {
	loops := "the expression counts through a range, or goes through a list within a list; ask for each value by its name"
	for _, test := range []struct{ text, want string }{
		{"", `the expression is not understood: unexpected token EOF`},
		{
			"node.labels.zone ==",
			`the expression is not understood: unexpected token EOF (1:19)  | node.labels.zone ==  | ..................^`,
		},
		{`"a"`, `the expression is not understood: expected bool, but got string`},
		{"node.capacity.cpu", `the expression is not understood: expected bool, but got int64`},
		{"server.setup", `the expression is not understood: unknown name server (1:1)  | server.setup  | ^`},
		{
			"node.zone == 1",
			`the expression is not understood: the node has no field zone (1:6)  | node.zone == 1  | .....^`,
		},
		{strings.Repeat(" ", 4097), "the expression is 4097 bytes long; at most 4096 are possible"},
		{
			strings.Repeat("true||", 260) + "true",
			`the expression is not understood: compilation failed: expression exceeds maximum allowed nodes`,
		},
		{"len(1..5) > 3", loops},
		{"any(node.networks, any(node.networks, true))", loops},
		{"let a = [1,2,3]; all(a, all(a, # > 0))", loops},
	} {
		_, err := placement.CompileRule(test.text)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.40q: error\n%v, want\n%s", test.text, err, test.want)
		}
	}
}

// A rule says the same whenever it is asked, at a bounded cost: there is no clock, nothing that
// grows, and no loop in a loop.
func TestRulesCallNothingThatIsNotBounded(t *testing.T) {
	for _, text := range []string{
		`now().Unix() > 0`, `date("2026-01-01").Unix() > 0`, `timezone("UTC") != nil`, `len(repeat("x", 100000)) > 1`,
		`len(toJSON(node)) > 1`,
		`fromJSON("[]") == nil`, `duration("1h") > duration("1s")`,
	} {
		if _, err := placement.CompileRule(text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// A rule makes no text longer than its inputs and its own length together: nothing in it doubles or
// joins texts.
func TestRulesDoNotGrow(t *testing.T) {
	var doubled strings.Builder
	doubled.WriteString(`let a0 = node.id + "0123456789";`)
	for i := range 100 {
		fmt.Fprintf(&doubled, "let a%d = a%d + a%d;", i+1, i, i)
	}
	for text, want := range map[string]bool{
		doubled.String() + "len(a100) > 0":                              false,
		`let a = [node]; let b = [a, a]; len(b) > 1`:                    false,
		`let a = (let b = node.id; [b, b]); let c = [a, a]; len(c) > 1`: false,
		`let n = [node, node]; len(string(n)) > 1`:                      false,
		`any(["x"], len(# + #) > 1)`:                                    false,
		`len(node.id + node.id) > 1`:                                    false,
		`node.traits.a + node.traits.b == "ab"`:                         false,
		`len(string(node)) > 1`:                                         false,
		`node.capacity.cpu + node.capacity["x"] + 1 > 1.5 + 2`:          true,
		`string(node.capacity.cpu) == "4000"`:                           true,
		`let a = node.id; let b = node.release; a == b`:                 true,
	} {
		if _, err := placement.CompileRule(text); (err == nil) != want {
			t.Errorf("%.60s: taken is %t, want %t: %v", text, err == nil, want, err)
		}
	}
}

// A rule sees a server's record as a job file or the command line has it.
func TestWhatRulesSee(t *testing.T) {
	s := plain("n0", func(s *placement.Server) {
		s.Labels, s.Release, s.Platform, s.Headnode, s.Reservoir = map[string]string{
			"zone": "a",
		}, "7.0", "20260101T000000Z", true, false
		s.Traits = map[string]plimsoll.Trait{
			"ssd": {Flag: true}, "hdd": {}, "arch": {Words: []string{"arm"}}, "nets": {Words: []string{"x", "y"}},
		}
		s.Networks = map[string]bool{"admin": true, "old": false}
	})
	for text, want := range map[string]bool{
		`node.id == "n0"`:                   true,
		`node.id matches "^n[0-9]$"`:        true,
		`node.labels.zone == "a"`:           true,
		`node.labels["zone"] in ["b", "c"]`: false,
		// a label that is missing is as one that is empty
		`node.labels.rack == "r1"`:                                               false,
		`node.labels.rack == ""`:                                                 true,
		`"zone" in node.labels and not ("r" in node.labels)`:                     true,
		`node.traits.ssd == true and node.traits.hdd == false`:                   true,
		`node.traits.arch == "arm"`:                                              true,
		`"y" in node.traits.nets`:                                                true,
		`node.traits.gpu == nil`:                                                 true,
		`node.networks.admin and !node.networks.old`:                             true,
		`node.release == "7.0" and node.platform < "2027"`:                       true,
		`node.headnode`:                                                          true,
		`node.reservoir`:                                                         false,
		`node.capacity.cpu == 4000 and node.capacity.memory == 8*1024*1024*1024`: true,
		`node.capacity["nvidia.com/gpu"] > 0`:                                    false,
		`any(keys(node.labels), # startsWith "z")`:                               true,
		`let zone = node.labels.zone; zone == "a"`:                               true,
	} {
		f := fleetWith(s)
		c := chainOf(t, placement.Named("where"))
		p := prepare(t, c, f, asks(1, func(r *placement.Request) { r.Constraints.Where = text }))
		if x := newPlacer(f, 1).Explain(p, 0); (x.Fit == 1) != want {
			t.Errorf("%s is %t, want %t: %v", text, !want, want, x.Summary())
		}
	}
}

// A where expression runs before the instances are loaded. It may not read anything that follows
// from them, in any way.
func TestWhereDoesNotSeeWhatRuns(t *testing.T) {
	for _, text := range []string{
		`node.free.cpu > 1`, `node.instances == 0`, `node["free"].cpu > 1`, `let n = node; n.free.cpu > 1`,
		`get(node, "instances") == 0`,
		`$env.node.instances == 0`, `[node][0].instances == 0`, `node["fr" + "ee"].cpu > 1`,
	} {
		_, err := placement.Default().Prepare(
			fleetOf(1), asks(1, func(r *placement.Request) { r.Constraints.Where = text }),
		)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.HasPrefix(err.Error(), "constraints.where: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := placement.Default().Prepare(
		fleetOf(1), asks(1, func(r *placement.Request) { r.Constraints.Where = `node.free.cpu > 1` }),
	)
	wantError(
		t, err,
		"constraints.where: the expression asks for node.free or node.instances, which are not known so early; use resources",
	)
}

// A rule that looks at the id is asked for each server, however it gets at the id; one that looks
// at the record only is asked once for servers that are alike.
func TestRulesAreNotSharedBetweenServersThatDiffer(t *testing.T) {
	for _, text := range []string{
		`node.id == "n3"`, `node["id"] == "n3"`, `node?.id == "n3"`, `"n3" == (true ? node.id : "")`,
	} {
		f := fleetOf(5)
		p := prepare(t, placement.Default(), f, asks(1, func(r *placement.Request) { r.Constraints.Where = text }))
		x := newPlacer(f, 1).Explain(p, 0)
		choice := newPlacer(f, 1).Place(p, 0)
		if x.Fit != 1 || choice.Slot != 3 {
			t.Errorf("%s: %d servers fit and %d is chosen, want 1 and 3", text, x.Fit, choice.Slot)
		}
	}
}

// A rule's result for a class of servers is forgotten with the class. Here a label changes, in a
// fleet whose classes come and go so often that they are swept.
func TestWhereFollowsLabels(t *testing.T) {
	f := fleetOf(4, labelled("zone", "a"))
	pl := newPlacer(f, 1)
	p := prepare(
		t, placement.Default(), f,
		asks(1, func(r *placement.Request) { r.Constraints.Where = `node.labels.zone == "a"` }),
	)
	first := f.Epoch()
	for i := range 1000 {
		for slot := range int32(4) {
			s := plain(
				f.ID(slot),
				func(s *placement.Server) { s.Labels = map[string]string{"zone": fmt.Sprint("z", i, slot)} },
			)
			if int(slot) == i%4 {
				s.Labels["zone"] = "a"
			}
			f.Put(slot, &s)
		}
		if choice, x := pl.Place(p, 0), pl.Explain(p, 0); int(choice.Slot) != i%4 || x.Fit != 1 {
			t.Fatalf("%d: slot %d of %d, want %d", i, choice.Slot, x.Fit, i%4)
		}
	}
	if f.Epoch() == first {
		t.Error("classes were never swept: the test tests little")
	}
}

// A rule that fails for a server keeps no instance there, and the error says so.
func TestRuleThatFails(t *testing.T) {
	f := fleetOf(2, func(i int, s *placement.Server) {
		s.Traits = map[string]plimsoll.Trait{"level": {Words: []string{"3"}}}
		if i == 1 {
			s.Traits["level"] = plimsoll.Trait{Flag: true}
		}
	})
	r := asks(1, func(r *placement.Request) {
		r.Constraints.Where = `int(node.traits.level) > 2`
		r.Constraints.Traits = map[string]plimsoll.Trait{"level": {Words: []string{"3"}}}
	})
	got := reasons(t, f, r, "where")
	if len(got) != 1 || !strings.HasPrefix(got["n1"], "the where expression fails: ") ||
		strings.Contains(got["n1"], "\n") {
		t.Errorf("%q", got)
	}
	rules := func(s *placement.Settings) { s.OwnerRules = map[string]string{"bob": `int(node.traits.level) > 2`} }
	if got := reasons(
		t, f, asks(1), "owners-servers", rules,
	); got["n0"] != "is kept for another owner" || !strings.HasPrefix(got["n1"], "an owner rule fails: ") {
		t.Errorf("%q", got)
	}
}

// "hard-filter-owners-servers": an owner with a rule is placed where it holds, everybody else where
// no rule holds. Rules may look at what is free, which changes.
func TestOwnerRules(t *testing.T) {
	f := fleetOf(6, labelled("rack", "r1", "r2", "r3"))
	rules := func(s *placement.Settings) {
		s.OwnerRules = map[string]string{
			"alice": `node.labels.rack == "r1"`, "bob": `node.labels.rack in ["r1", "r2"] and node.free.cpu > 3000`,
		}
	}
	for owner, want := range map[string][]string{
		"alice": {"n0", "n3"}, "bob": {"n0", "n1", "n3", "n4"}, "carol": {"n2", "n5"},
	} {
		if got := survivors(
			t, f, asks(1, func(r *placement.Request) { r.Owner = owner }), "owners-servers", rules,
		); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", owner, got, want)
		}
	}
	f.Bind(1, f.Kind(&placement.Instance{Owner: "bob", Resources: plimsoll.Resources{"cpu": 2000}}))
	if got := survivors(
		t, f, asks(1, func(r *placement.Request) { r.Owner = "carol" }), "owners-servers", rules,
	); !slices.Equal(got, []string{"n1", "n2", "n5"}) {
		t.Errorf("carol: %v when n1 is no longer bob's", got)
	}
	want := map[string]string{
		"n0": "is kept for another owner", "n3": "is kept for another owner", "n4": "is kept for another owner",
	}
	if got := reasons(
		t, f, asks(1, func(r *placement.Request) { r.Owner = "carol" }), "owners-servers", rules,
	); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := reasons(
		t, f, asks(1), "owners-servers", rules,
	); got["n2"] != "is not one of its owner's servers" || len(got) != 4 {
		t.Errorf("%v", got)
	}
}

// However long it is, whatever text is given is a rule or an error, and a rule ends.
func FuzzRule(f *testing.F) {
	for _, text := range []string{
		`node.id == "n0"`, `node.labels.a matches "(a+)+$"`, `let n = node; n.free.cpu > 1`, `all(1..9, true)`,
		`"x" in node.traits`, `node`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := placement.CompileRule(text)
		if err != nil {
			return
		}
		fleet := fleetOf(2, labelled("a", "x", "y"))
		stage := placement.Stage{Name: "ask", Keep: func(v *placement.View) bool {
			ok, err := rule.Match(v)
			return ok && !errors.Is(err, nil)
		}}
		c := chainWith(t, placement.Named("ask"), append(placement.Stages(), stage))
		newPlacer(fleet, 1).Place(prepare(t, c, fleet, asks(1)), 0)
	})
}
