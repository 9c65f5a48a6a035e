package config_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// FuzzParseJob: any bytes give a valid job or an *Error, and a printed job is read back to the
// same job.
func FuzzParseJob(f *testing.F) {
	f.Add([]byte(wordcount))
	f.Add([]byte(constrained))
	f.Add([]byte("job: a\ngroups: [{name: g, command: [a], indexes: [3, 17, 4711]}]\n"))
	for _, c := range readCases(f, "testdata/job_errors.txtar") {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := config.ParseJob("fuzz", data)
		if err != nil {
			isConfigError(t, err)
			return
		}
		if err := spec.Validate(); err != nil {
			t.Fatalf("accepted but not valid: %v", err)
		}
		text, err := config.FormatJob(&spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.ParseJob("printed", text)
		if err != nil {
			t.Fatalf("printed but not readable: %v\n%s", err, text)
		}
		if d := cmp.Diff(spec, again); d != "" {
			t.Fatalf("read, printed and read again (-first +second):\n%s\n%s", d, text)
		}
	})
}

// FuzzParseQueues: the same for queue files.
func FuzzParseQueues(f *testing.F) {
	f.Add([]byte(queueFile))
	f.Add([]byte(fullQueueFile))
	for _, c := range readCases(f, "testdata/queue_errors.txtar") {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := config.ParseQueues("fuzz", data)
		if err != nil {
			isConfigError(t, err)
			return
		}
		if err := root.Validate(); err != nil {
			t.Fatalf("accepted but not valid: %v", err)
		}
		text, err := config.FormatQueues(&root)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.ParseQueues("printed", text)
		if err != nil {
			t.Fatalf("printed but not readable: %v\n%s", err, text)
		}
		if d := cmp.Diff(root, again); d != "" {
			t.Fatalf("read, printed and read again (-first +second):\n%s\n%s", d, text)
		}
	})
}

// FuzzParsePolicies: the same for policy files.
func FuzzParsePolicies(f *testing.F) {
	f.Add([]byte(policyFile))
	f.Add([]byte("kind: NodeQOS\nname: n\nrules: [{name: r, metric: m, waterline: 0065, action: a}]\n"))
	for _, c := range readCases(f, "testdata/policy_errors.txtar") {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		policies, err := config.ParsePolicies("fuzz", data)
		if err != nil {
			isConfigError(t, err)
			return
		}
		for i := range policies {
			if err := policies[i].Validate(); err != nil {
				t.Fatalf("accepted but not valid: %v", err)
			}
		}
		text, err := config.FormatPolicies(policies)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.ParsePolicies("printed", text)
		if err != nil {
			t.Fatalf("printed but not readable: %v\n%s", err, text)
		}
		if d := cmp.Diff(policies, again); d != "" {
			t.Fatalf("read, printed and read again (-first +second):\n%s\n%s", d, text)
		}
	})
}

// FuzzParsePlacement: the same for placement files, and an accepted file makes a chain.
func FuzzParsePlacement(f *testing.F) {
	f.Add([]byte(placementFile))
	for _, c := range readCases(f, "testdata/placement_errors.txtar") {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := config.ParsePlacement("fuzz", data)
		if err != nil {
			isConfigError(t, err)
			return
		}
		if p.Chain == nil || len(p.Chain.Stages()) == 0 {
			t.Fatal("accepted without a chain")
		}
		text, err := config.FormatPlacement(&p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.ParsePlacement("printed", text)
		if err != nil {
			t.Fatalf("printed but not readable: %v\n%s", err, text)
		}
		if d := cmp.Diff(p, again, cmpopts.IgnoreFields(config.Placement{}, "Chain"), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("read, printed and read again (-first +second):\n%s\n%s", d, text)
		}
		if d := cmp.Diff(p.Chain.Stages(), again.Chain.Stages()); d != "" {
			t.Fatalf("other stages (-first +second):\n%s", d)
		}
	})
}

// FuzzJobText: any text in a job comes back unchanged from the printed file.
func FuzzJobText(f *testing.F) {
	for _, s := range []string{
		"plain", "", "true", "No", "1e3", "0x10", "- a", "a: b", "#", "a #b", "\n", " a ", "'", `"`, "\u00a0", "\u2028",
		"😀", "{", "~", "\\n",
		"\x01", "\u0085", "line\nline\n", "a\n b\n", "#\n- x\n", "a: \"b\"\n---\n", "a\n\nb\n", "*a", "&a", "!a", "%",
		"@", "`", "1_000", "0o7", ".inf", "12:30:45", "2001-01-01", "<<",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		spec := plimsoll.JobSpec{
			ID: "a", Queue: "root.default", Owner: s, Labels: map[string]string{"key": s},
			Groups: []plimsoll.GroupSpec{{Name: "g", Count: 1, Command: []string{"echo", s, s}}},
		}
		if s != "" {
			spec.Groups[0].Env = map[string]string{s: s}
		}
		if plimsoll.ValidateOutputs("outputs", []string{s}) == nil {
			spec.Groups[0].Outputs = []string{s}
		}
		withPlacement(&spec, s)
		if spec.Validate() != nil || !utf8.ValidString(s) {
			t.Skip("no possible job")
		}
		text, err := config.FormatJob(&spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := config.ParseJob("printed", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := cmp.Diff(spec, again); d != "" {
			t.Fatalf("-want +got:\n%s\n%s", d, text)
		}
	})
}

// withPlacement puts a text in each free text of the constraints that takes it.
func withPlacement(spec *plimsoll.JobSpec, s string) {
	c := &spec.Groups[0].Constraints
	for _, with := range []plimsoll.Constraints{
		{Traits: map[string]plimsoll.Trait{s: {Words: []string{s}}, "list": {Words: []string{s, s}}}},
		{Networks: [][]string{{s}, {s, s}}},
		{Near: []plimsoll.Selector{{Label: "key=" + s}}},
		{Spread: []plimsoll.Spread{{By: s, MaxSkew: 1}}},
		{Where: s},
	} {
		if *c = with; spec.Validate() == nil {
			return
		}
	}
	*c = plimsoll.Constraints{}
}

func isConfigError(t *testing.T, err error) {
	t.Helper()
	var e *config.Error
	if !errors.As(err, &e) || len(e.Problems) == 0 || plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Fatalf("not an *Error with CodeInvalid: %#v", err)
	}
}

// fullQueueFile has every field of a queue file.
const fullQueueFile = `
partitions:
  - name: prod
    placementrules:
      - name: tag
        value: namespace
        create: true
        filter: {type: deny, users: ["^bob.*"], groups: [ops, dev]}
        parent: {name: fixed, value: root.teams, create: true}
      - {name: fixed, value: root.default}
    limits: [{limit: all, users: [ann, "*"], groups: [g, "*"], maxresources: {vcore: 500m, memory: 1.5 Gi}}]
    preemption: {enabled: no, quotapreemptionenabled: true}
    nodesortpolicy: {type: binpacking, resourceweights: {vcore: 1.5, memory: 0}}
    usergroupresolver: {type: os}
    queues:
      - name: root
        submitacl: "*"
        adminacl: "ann,bob dev"
        queues:
          - name: default
            maxapplications: 18446744073709551615
            maxtasks: 10
          - name: teams
            parent: true
            submitacl: ""
            resources: {guaranteed: {ephemeral-storage: 1Gi}, max: {memory: 9223372036854775807, vcore: 0}}
            properties: {application.sort.policy: fair, order: strict, fairness.halflife: 24h, some.thing: }
            childtemplate: {maxapplications: 1, properties: {a: b}, resources: {max: {vcore: 1}}}
`
