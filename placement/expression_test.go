package placement_test

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// RFD 60, phase 1: "The proposed (albeit simplified) plugin chain is as follows", word for word.
var rfdChain = []string{
	"hard-filter-setup", "hard-filter-running", "hard-filter-invalid-servers", "hard-filter-volumes-from",
	"hard-filter-reserved",
	"hard-filter-vlans", "hard-filter-platform-versions", "hard-filter-traits", "hard-filter-headnode",
	"hard-filter-overprovision-ratios",
	"load-server-vms", "calculate-ticketed-vms", "hard-filter-capness", "hard-filter-vm-count",
	"hard-filter-sick-servers",
	"calculate-server-unreserved", "hard-filter-min-ram", "hard-filter-min-cpu", "hard-filter-min-disk",
	"hard-filter-locality-hints",
	"hard-filter-owners-servers", "hard-filter-reservoir", "hard-filter-large-servers", "soft-filter-locality-hints",
	"score-unreserved-ram", "score-unreserved-disk", "score-num-owner-zones", "score-current-platform",
	"score-next-reboot",
	"score-uniform-random",
}

// The names of RFD 60 name our stages, so that its list is a chain.
func TestTheListOfRFD60IsAChain(t *testing.T) {
	c := chainOf(t, stagesNamed(rfdChain...))
	want := []string{
		"setup", "running", "invalid-servers", "volumes-from", "reserved", "networks", "platform-versions", "traits",
		"headnode",
		"overprovision-ratios", "load-instances", "calculate-tickets", "capness", "instance-count", "sick-servers",
		"calculate-unreserved",
		"min-memory", "min-cpu", "min-disk", "locality", "owners-servers", "reservoir", "large-servers",
		"soft-locality",
		"score-unreserved-memory", "score-unreserved-disk", "score-owner-instances", "score-current-platform",
		"score-next-reboot", "score-random",
	}
	if got := c.Stages(); !slices.Equal(got, want) {
		t.Errorf("stages\n%v, want\n%v", got, want)
	}
}

// "We need to push the usage of container data … as late as possible" (RFD 60, phase 1). The
// default chain has the stages of RFD 60 in its order, and our own between them. No stage before
// load-instances reads instances.
func TestTheDefaultChainKeepsTheOrderOfRFD60(t *testing.T) {
	names := placement.Default().Stages()
	at := -1
	for _, stage := range chainOf(t, stagesNamed(rfdChain...)).Stages() {
		i := slices.Index(names, stage)
		if i < at {
			t.Errorf("%s stands at %d, before the stage that RFD 60 has in front of it", stage, i)
		}
		at = max(at, i)
	}
	reads := map[string]placement.Reads{}
	for _, s := range placement.Stages() {
		reads[s.Name] = s.Reads
	}
	for i, name := range names[:slices.Index(names, "load-instances")] {
		if reads[name] != placement.ReadsRecord {
			t.Errorf("%s is number %d, before the instances are loaded, and reads them", name, i)
		}
	}
}

// Two stages must not have the same name or alias, or one of them could not be named.
func TestNamesOfStagesAreTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for _, s := range placement.Stages() {
		for _, name := range append([]string{s.Name}, s.Aliases...) {
			if other := seen[name]; other != "" {
				t.Errorf("%q names %s and %s", name, other, s.Name)
			}
			seen[name] = s.Name
		}
		if s.Keep == nil && s.Batch == nil {
			t.Errorf("%s does nothing", s.Name)
		}
		if s.Keep != nil && s.Why == nil && s.Applies == nil {
			t.Errorf("%s drops servers and does not say why", s.Name)
		}
	}
}

// nested returns a pipe of so many pipes around a stage, as a JSON reader gives it.
func nested(depth int) any {
	var raw any = "setup"
	for range depth {
		raw = []any{"pipe", raw}
	}
	return raw
}

// A text that is not a chain is refused with the place of the mistake and the way to write it.
func TestParseExpressionErrors(t *testing.T) {
	for _, test := range []struct {
		raw  any
		want string
	}{
		{"", `chain: "" is not the name of a stage`},
		{"pipe", `chain: "pipe" is not the name of a stage`},
		{"or", `chain: "or" is not the name of a stage`},
		{nil, `chain: is <nil>; give the name of a stage or a list`},
		{3.5, `chain: is 3.5; give the name of a stage or a list`},
		{[]any{}, `chain: is an empty list; begin it with "pipe" or "or" and name stages`},
		{[]any{"and", "setup"}, `chain[0]: is and; a list begins with "pipe" or "or"`},
		{[]any{"setup"}, `chain[0]: is setup; a list begins with "pipe" or "or"`},
		{[]any{7.0, "setup"}, `chain[0]: is 7; a list begins with "pipe" or "or"`},
		{[]any{"pipe", "setup", true}, `chain[2]: is true; give the name of a stage or a list`},
		{[]any{
			"pipe", "setup", []any{"or", "a", []any{}},
		}, `chain[2][2]: is an empty list; begin it with "pipe" or "or" and name stages`},
		{[]any{"pipe", "or"}, `chain[1]: "or" is not the name of a stage`},
		{nested(33), "chain" + strings.Repeat("[1]", 33) + ": is nested more than 32 deep"},
	} {
		_, err := placement.ParseExpression(test.raw)
		wantError(t, err, test.want)
		if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%v: code %v", test.raw, plimsoll.CodeOf(err))
		}
	}
	if _, err := placement.ParseExpression(nested(32)); err != nil {
		t.Errorf("32 deep: %v", err)
	}
}

// A chain is checked against the facts that its stages read, before anything runs.
func TestNewChainErrors(t *testing.T) {
	pipe, or, name := placement.Pipe, placement.Or, placement.Named
	long := placement.Expression{Op: "pipe"}
	for range 251 {
		long.List = append(long.List, name("setup"))
	}
	loop := map[string]placement.Expression{
		"a": pipe(name("setup"), name("b")), "b": or(name("c"), name("traits")), "c": name("a"),
	}
	var known []string
	for _, s := range placement.Stages() {
		known = append(append(known, s.Name), s.Aliases...)
	}
	slices.Sort(known)
	for _, test := range []struct {
		e    placement.Expression
		want string
	}{
		{name("steup"), `chain: "steup" is not the name of a stage; there are ` + strings.Join(known, ", ")},
		{pipe(), `chain: its "pipe" has 0 of at least 1 parts`},
		{or(), `chain: its "or" has 0 of at least 2 parts`},
		{or(name("setup")), `chain: its "or" has 1 of at least 2 parts`},
		{pipe(name("setup"), or(name("setup"), pipe())), `chain[2][2]: its "pipe" has 0 of at least 1 parts`},
		{placement.Expression{}, `chain: begins with ""; a list begins with "pipe" or "or"`},
		{placement.Expression{Op: "and"}, `chain: begins with "and"; a list begins with "pipe" or "or"`},
		{pipe(name("capness")), `chain[1]: "capness" reads what runs on a server; put it after load-instances`},
		{pipe(
			name("load-instances"), name("min-cpu"),
		), `chain[2]: "min-cpu" reads what is left on a server; put it after calculate-unreserved`},
		{pipe(name("min-cpu")), `chain[1]: "min-cpu" reads what runs on a server; put it after load-instances`},
		{pipe(
			name("calculate-unreserved"),
		), `chain[1]: "calculate-unreserved" reads what runs on a server; put it after load-instances`},
		{
			pipe(or(name("load-instances"), name("identity")), name("locality")),
			// only one of the alternatives loads
			`chain[2]: "locality" reads what runs on a server; put it after load-instances`,
		},
		{
			pipe(name("load-instances"), name("calculate-unreserved"), name("score-random"), name("setup")),
			`chain[4]: "setup" filters, and stands behind the score "score-random"; put scores last`,
		},
		{
			pipe(name("load-instances"), name("calculate-unreserved"), or(name("score-random"), name("identity"))),
			`chain[3][2]: "identity" filters, and stands behind the score "score-random"; put scores last`,
		},
		{long, "chain[251]: the chain has more than 250 stages"},
		{name("a"), `c: "a" is defined by itself: a → b → c → a`},
	} {
		_, err := placement.NewChain(test.e, placement.Stages(), loop, placement.DefaultSettings())
		wantError(t, err, test.want)
	}
	long.List = long.List[:250]
	c, err := placement.NewChain(long, placement.Stages(), nil, placement.DefaultSettings())
	if err != nil {
		t.Fatalf("250 stages: %v", err)
	}
	f := fleetOf(3, func(i int, s *placement.Server) { s.Setup = i == 1 })
	if choice := newPlacer(f, 1).Place(prepare(t, c, f, asks(1)), 0); choice.Slot != 1 {
		t.Errorf("250 stages: %+v", choice)
	}
}

// Settings that cannot be meant are refused.
func TestSettingsErrors(t *testing.T) {
	for _, test := range []struct {
		change func(*placement.Settings)
		want   string
	}{
		{
			func(s *placement.Settings) { s.Batch = -1 },
			"settings: batch, max-instances and sick-for cannot be negative",
		},
		{
			func(s *placement.Settings) { s.MaxInstances = -1 },
			"settings: batch, max-instances and sick-for cannot be negative",
		},
		{
			func(s *placement.Settings) { s.SickFor = -1 },
			"settings: batch, max-instances and sick-for cannot be negative",
		},
		{func(s *placement.Settings) { s.Weights.Near = math.NaN() }, "weights: NaN is not a weight; give a number from -1,000,000 to 1,000,000"},
		{func(s *placement.Settings) {
			s.Weights.Random = math.Inf(
				-1,
			)
		}, "weights: -Inf is not a weight; give a number from -1,000,000 to 1,000,000"},
		{func(s *placement.Settings) { s.Weights.Spread = 1e6 + 1 }, "weights: 1.000001e+06 is not a weight; give a number from -1,000,000 to 1,000,000"},
		{
			func(s *placement.Settings) { s.OwnerRules = map[string]string{"a": "true", "b": "1"} },
			"owner-rules.b: the expression is not understood: expected bool, but got int",
		},
	} {
		settings := placement.DefaultSettings()
		test.change(&settings)
		_, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings)
		wantError(t, err, test.want)
	}
	// Every weight is checked, also one that is added later.
	for i := range reflect.TypeFor[placement.Weights]().NumField() {
		settings := placement.DefaultSettings()
		reflect.ValueOf(&settings.Weights).Elem().Field(i).SetFloat(math.NaN())
		if _, err := placement.NewChain(placement.DefaultExpression(), placement.Stages(), nil, settings); err == nil {
			t.Errorf("a weight %s of NaN is taken", reflect.TypeFor[placement.Weights]().Field(i).Name)
		}
	}
}

// An expression that is written as JSON is read again as it was.
func TestExpressionsSurviveJSON(t *testing.T) {
	pipe, or, name := placement.Pipe, placement.Or, placement.Named
	for _, e := range []placement.Expression{
		name("setup"), pipe(name("setup")), pipe(name("a"), or(name("b"), pipe(name("c"), name("d")))),
		placement.DefaultExpression(),
	} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var again placement.Expression
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if !reflect.DeepEqual(again, e) {
			t.Errorf("%s is read as %s", e, again)
		}
	}
	if got, want := pipe(name("a"), or(name("b"), name("c"))).String(), "[pipe, a, [or, b, c]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A definition is as if its expression stood there, and can itself name others.
func TestDefinitions(t *testing.T) {
	definitions := map[string]placement.Expression{
		"open":   stagesNamed("setup", "running", "usable"),
		"mine":   placement.Pipe(placement.Named("open"), placement.Named("headnode")),
		"usable": placement.Named("invalid-servers"),
	}
	c, err := placement.NewChain(
		placement.Pipe(placement.Named("mine"), placement.Named("traits")), placement.Stages(), definitions,
		placement.DefaultSettings(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Stages(), []string{
		"setup", "running", "invalid-servers", "headnode", "traits",
	}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// For any input: an expression that is read is written and read again as the same. Anything else is
// an error. Building a chain of the expression gives a chain or an error.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		`"setup"`, `["pipe","setup",["or","reservoir","identity"]]`, `["pipe"]`, `[]`, `["or","setup"]`, `null`,
		`["pipe",["pipe",["pipe",1]]]`,
		`["pipe","load-instances","calculate-unreserved","score-random"]`, `{"pipe":[]}`, `["pipe","defined"]`,
	} {
		f.Add([]byte(text))
	}
	definitions := map[string]placement.Expression{
		"defined": stagesNamed("setup", "other"),
		"other":   placement.Or(placement.Named("traits"), placement.Named("defined")),
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e, again placement.Expression
		if json.Unmarshal(data, &e) != nil {
			return
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%s is written as %s and read as %s, %v", e, text, again, err)
		}
		c, err := placement.NewChain(e, placement.Stages(), definitions, placement.DefaultSettings())
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
				t.Fatalf("%s: %v", e, err)
			}
			return
		}
		fleet := fleetOf(2)
		newPlacer(fleet, 1).Place(prepare(t, c, fleet, asks(1)), 0)
	})
}
