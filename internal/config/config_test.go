package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

const wordcount = `
job: wordcount
owner: alice
queue: root.Batch
labels: {team: docs}
groups:
  - name: map
    count: 20
    command: ["sh", "-c", "wc -w $INPUT > $PLIMSOLL_TASK_DIR/out"]
    env: {INPUT: /usr/share/common-licenses/GPL-3, N: 1.10, DEBUG: true}
    resources: {cpu: 500m, memory: 64Mi, nvidia.com/gpu: 1}
    retry: {policy: backoff, limit: 3, initialDelay: 2s, maxDelay: 1m}
    maxRuntime: 10m
    killGrace: 5s
    user: 1000
    userGroup: staff
    workDir: /tmp
    logLimit: 1Mi
  - name: reduce
    command: [sleep, 5]
`

func wordcountSpec() plimsoll.JobSpec {
	return plimsoll.JobSpec{
		ID: "wordcount", Owner: "alice", Queue: "root.batch", Labels: map[string]string{"team": "docs"},
		Groups: []plimsoll.GroupSpec{
			{
				Name: "map", Count: 20, Command: []string{"sh", "-c", "wc -w $INPUT > $PLIMSOLL_TASK_DIR/out"},
				Env:       map[string]string{"INPUT": "/usr/share/common-licenses/GPL-3", "N": "1.10", "DEBUG": "true"},
				Resources: plimsoll.Resources{"cpu": 500, "memory": 64 << 20, "nvidia.com/gpu": 1},
				Retry: plimsoll.RetryPolicy{
					Kind: plimsoll.RetryBackoff, Limit: 3, InitialDelay: 2 * time.Second, MaxDelay: time.Minute,
				},
				MaxRuntime: 10 * time.Minute, KillGrace: 5 * time.Second, User: "1000", UserGroup: "staff",
				WorkDir:  "/tmp",
				LogLimit: 1 << 20,
			},
			{Name: "reduce", Count: 1, Command: []string{"sleep", "5"}},
		},
	}
}

func TestParseJobReadsEveryField(t *testing.T) {
	spec, err := config.ParseJob("wordcount.yaml", []byte(wordcount))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wordcountSpec(), spec); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestParseJobReadsJSON(t *testing.T) {
	spec, err := config.ParseJob("a.json", []byte("{\n\t\"job\": \"a\",\n\t\"groups\": [\n\t\t{\"name\": \"g\", \"command\": [\"ls\"], \"count\": 2,\n"+
		"\t\t \"resources\": {\"cpu\": 1.5, \"memory\": 1e6}}\n\t]\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := plimsoll.JobSpec{ID: "a", Groups: []plimsoll.GroupSpec{
		{Name: "g", Count: 2, Command: []string{"ls"}, Resources: plimsoll.Resources{"cpu": 1500, "memory": 1_000_000}},
	}}
	if d := cmp.Diff(want, spec); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestParseJobReadsAliases(t *testing.T) {
	spec, err := config.ParseJob(
		"a.yaml", []byte("job: a\ngroups:\n- {name: x, command: &c [ls, -l]}\n- {name: y, command: *c}\n"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(spec.Groups[0].Command, spec.Groups[1].Command); d != "" {
		t.Error(d)
	}
}

func TestJobIsPrintedAsItIsRead(t *testing.T) {
	spec := wordcountSpec()
	text, err := config.FormatJob(&spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `job: wordcount
owner: alice
queue: root.batch
labels:
  team: docs
groups:
  - name: map
    count: 20
    command: [sh, "-c", "wc -w $INPUT > $PLIMSOLL_TASK_DIR/out"]
    env: {DEBUG: "true", INPUT: /usr/share/common-licenses/GPL-3, "N": "1.10"}
    resources: {cpu: 500m, memory: 64Mi, nvidia.com/gpu: 1}
    retry: {policy: backoff, limit: 3, initialDelay: 2s, maxDelay: 1m}
    maxRuntime: 10m
    killGrace: 5s
    user: "1000"
    userGroup: staff
    workDir: /tmp
    logLimit: 1Mi
  - name: reduce
    count: 1
    command: [sleep, "5"]
`
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

const queueFile = `
partitions:
  - name: default
    placementrules:
      - name: provided
        create: false
    preemption: {enabled: false}
    queues:
      - name: Root
        submitacl: "*"
        queues:
          - name: batch
            properties: {application.sort.policy: fifo}
            maxapplications: 10
            resources:
              guaranteed: {vcore: "10", memory: 1G}
              max: {cpu: 20500m, memory: 64Gi, nvidia.com/gpu: 8}
          - name: teams
            parent: true
            queues:
              - name: A
          - name: empty
            parent: true
`

func TestParseQueuesReadsYuniKornsSchema(t *testing.T) {
	partition := &plimsoll.PartitionConfig{Rules: []plimsoll.PlacementRule{{Name: "provided"}}, NoPreemption: true}
	everybody := &plimsoll.AccessList{Everybody: true}
	want := plimsoll.QueueConfig{Name: "root", Parent: true, SubmitAccess: everybody, Partition: partition}
	want.Queues = []plimsoll.QueueConfig{
		{
			Name: "batch", MaxJobs: 10, Properties: map[string]string{"application.sort.policy": "fifo"},
			Guaranteed: plimsoll.Resources{"cpu": 10_000, "memory": 1_000_000_000},
			Max:        plimsoll.Resources{"cpu": 20_500, "memory": 64 << 30, "nvidia.com/gpu": 8},
		},
		{Name: "teams", Parent: true, Queues: []plimsoll.QueueConfig{{Name: "a"}}},
		{Name: "empty", Parent: true},
	}
	root, err := config.ParseQueues("queues.yaml", []byte(queueFile))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, root); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	text, err := config.FormatQueues(&root)
	if err != nil {
		t.Fatal(err)
	}
	const printed = `partitions:
  - name: default
    placementrules:
      - name: provided
    preemption: {enabled: false}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
            resources:
              guaranteed: {memory: 1000000000, vcore: 10}
              max: {memory: 64Gi, nvidia.com/gpu: 8, vcore: 20500m}
            maxapplications: 10
            properties: {application.sort.policy: fifo}
          - name: teams
            queues:
              - name: a
          - name: empty
            parent: true
`
	if d := cmp.Diff(printed, string(text)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	again, err := config.ParseQueues("printed.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(root, again); d != "" {
		t.Errorf("printed and read again: %s", d)
	}
}

func TestQueuesWithoutRootArePutUnderIt(t *testing.T) {
	root, err := config.ParseQueues(
		"q.yaml", []byte("partitions: [{name: default, queues: [{name: default}, {name: batch}]}]"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(plimsoll.DefaultQueues(), root); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestDetect(t *testing.T) {
	for text, want := range map[string]config.FileKind{
		"job: a\n": config.JobFileKind, "groups: []": config.JobFileKind, "partitions: []": config.QueueFileKind,
	} {
		if got, err := config.Detect("f", []byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := config.Detect("f.yaml", []byte("a: b")); err == nil ||
		!strings.Contains(err.Error(), "f.yaml:1: is neither") {
		t.Errorf("neither: %v", err)
	}
}

// TestHostileFilesAreRefused: files that would cost a naive reader its memory, its stack or its
// time are refused with a reason.
func TestHostileFilesAreRefused(t *testing.T) {
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "k%d: v\n", i)
		}
		return b.String()
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'p'; c++ {
		bomb += fmt.Sprintf(
			"%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","),
		)
	}
	for _, c := range []struct{ name, text, want string }{
		{"larger than the limit", strings.Repeat("#", config.MaxFileBytes+1), "is longer than 4194304 bytes"},
		{"a tab", "job: a\n\towner: b\n", "2: has a tab where YAML wants spaces"},
		{"billion laughs", bomb, "values (an alias counts as what it stands for)"},
		{"deep flow", strings.Repeat("[", 100_000), "nested deeper than"},
		{"deep flow that closes", strings.Repeat("{a: ", 100) + strings.Repeat("}", 100), "nested deeper than"},
		{"deep list entries", strings.Repeat("- ", 100_000), "beyond column"},
		{"deep explicit keys", strings.Repeat("? ", 100_000), "beyond column"},
		{"deep anchors", strings.Repeat("&a ", 100_000), "beyond column"},
		{"long mapping", keys(10_000), "more than 5000 entries"},
		{"long nested mapping", "a:\n  " + strings.ReplaceAll(keys(10_000), "\n", "\n  "), "more than 5000 entries"},
		{"many tokens", strings.Repeat("- a\n", 500_000), "more than 400000 words"},
		{"zero bytes", "job: a\nowner: \x00", "not text in UTF-8"},
		{"not UTF-8", "job: \xff", "not text in UTF-8"},
		{"junk", strings.Repeat("\x00\xff:{", 1<<18), "not text in UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.ParseJob("hostile.yaml", []byte(c.text))
			var e *config.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.200v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestManyProblemsAreCutOff(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("job: a\ngroups:\n")
	for range 50 {
		b.WriteString("- {nam: x}\n")
	}
	_, err := config.ParseJob("a.yaml", b.Bytes())
	if err == nil || !strings.HasSuffix(err.Error(), "a.yaml: and 30 more") {
		t.Errorf("got %v", err)
	}
}

// A file may hold some 100,000 unknown fields, and each gets a suggestion.
func TestASuggestionIsCheap(t *testing.T) {
	const fields = 500
	file := []byte("job: a\ngroups:\n" + strings.Repeat("- max_runtme: 1\n", fields))
	allocations := testing.AllocsPerRun(3, func() {
		if _, err := config.ParseJob("job.yaml", file); err == nil {
			t.Error("unknown fields were taken")
		}
	})
	if each := allocations / fields; each > 110 {
		t.Errorf("a field makes %.0f allocations", each)
	}
}

// A group without a count has as many tasks as in JSON and in Go: one, not none.
func TestAGroupWithoutACountHasTheDefault(t *testing.T) {
	const file = "job: a\ngroups:\n- {name: x, command: [ls]}\n"
	spec, err := config.ParseJob("a.yaml", []byte(file))
	if err != nil || spec.Groups[0].Count != plimsoll.DefaultCount {
		t.Errorf("%+v, %v", spec, err)
	}
	_, err = config.ParseJob("a.yaml", []byte("job: a\ngroups:\n- {name: x, command: [ls], count: 0}\n"))
	if want := "a.yaml:3: groups[0].count: is 0; give 1 or more, or leave it out for one task"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestQueueNotesSayWhatHasNoEffect: the notes on an accepted file say which parts have no effect,
// and whether everybody may use the queues.
func TestQueueNotesSayWhatHasNoEffect(t *testing.T) {
	_, notes, err := config.ReadQueues("q.yaml", []byte(`partitions:
  - name: prod
    placementrules:
      - name: magic
      - {name: tag}
    preemption: {quotapreemptionenabled: true}
    usergroupresolver: {type: os}
    queues:
      - name: root
        queues:
          - name: a
            properties: {application.sort.policy: lifo, preemption.delay: 10s, some.thing: else, priority.offset: "5"}
            childtemplate: {maxapplications: 1}
            limits: [{users: [ann], maxapplications: 3}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, n := range notes {
		got.WriteString(n.In("q.yaml") + "\n")
	}
	const want = `q.yaml:2: partitions[0].name: is "prod"; the one partition is named "default" here
q.yaml:4: placementrules[0].name: "magic" is no rule that is known: a job that comes to it is refused; ` +
		`write user, fixed, provided, tag or recovery
q.yaml:5: placementrules[1].value: is missing, so the rule places no job; name the tag
q.yaml:6: partitions[0].preemption: is kept but has no effect yet: no running task is stopped to make room for another
q.yaml:7: partitions[0].usergroupresolver: has no effect; a job states the groups of its owner: ` +
		`ownerGroups, or submit --owner-group
q.yaml:9: root: no queue has submitacl or adminacl: everybody may submit to and administer every queue; ` +
		`once one has, a queue admits only those whom it or a queue above names
q.yaml:9: root: access lists with names, and limits, hold for the owner that a submit states: ` +
		`a coordinator takes them only with --trust-owner
q.yaml:12: root.a.properties."application.sort.policy": ` +
		`is "lifo", which cannot be read: the default holds; write fifo or fair
q.yaml:12: root.a.properties."preemption.delay": is kept but has no effect yet
q.yaml:12: root.a.properties."some.thing": is not known and has no effect
q.yaml:13: root.a.childtemplate: has no effect on a leaf; write parent: true, or remove it
q.yaml:14: root.a.limits: hold for the owner of a job and its ownerGroups, as the job states them
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// YuniKorn preempts unless a file turns it off, so a file that does not state it has a note.
func TestANoteSaysThatNothingPreempts(t *testing.T) {
	const stated = "q.yaml:2: partitions[0].preemption: is kept but has no effect yet: " +
		"no running task is stopped to make room for another"
	const missing = ": partitions[0].preemption: is not stated, which turns it on in YuniKorn; " +
		"here no running task is stopped yet to make room for another"
	for text, want := range map[string]string{
		"":                                "q.yaml:2" + missing,
		"  preemption:\n":                 "q.yaml:2" + missing,
		"  preemption: {}\n":              stated,
		"  preemption: {enabled: true}\n": stated,
	} {
		file := "partitions:\n" + text + "  queues: [{name: root, submitacl: \"*\"}]\n"
		file = strings.Replace(file, "  ", "- ", 1)
		_, notes, err := config.ReadQueues("q.yaml", []byte(file))
		if err != nil || len(notes) != 1 || notes[0].In("q.yaml") != want {
			t.Errorf("%q: %v, %v, want %s", text, notes, err, want)
		}
	}
}
