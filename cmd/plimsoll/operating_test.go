package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// operatingPage is docs/operating.md.
func operatingPage(t *testing.T) string { return docsPage(t, "operating.md") }

func docsPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// deployed returns the files of deploy that a pattern matches, by their paths.
func deployed(t *testing.T, pattern string, least int) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../deploy/" + pattern)
	if err != nil || len(names) < least {
		t.Fatalf("%v, %v", names, err)
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}

// TestDeployedFilesStandInThePage as they are.
func TestDeployedFilesStandInThePage(t *testing.T) {
	pages := operatingPage(t) + docsPage(t, "cluster.md")
	for name, text := range deployed(t, "*/*", 12) {
		if !strings.Contains(pages, "\n"+text+"```\n") {
			t.Errorf("neither docs/operating.md nor docs/cluster.md has the text of %s", name)
		}
	}
}

var unitCommand = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/plimsoll (.*)$`)

// TestFlagsOfTheUnitsExist, those in their configuration files too.
func TestFlagsOfTheUnitsExist(t *testing.T) {
	configs, err := filepath.Abs("../../deploy/config")
	if err != nil {
		t.Fatal(err)
	}
	for name := range deployed(t, "cluster/*.yaml", 3) {
		role := strings.TrimSuffix(filepath.Base(name), ".yaml")
		if err := parseArgs([]string{role, "--config", name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, unit := range deployed(t, "systemd/*.service", 4) {
		m := unitCommand.FindStringSubmatch(unit)
		if m == nil {
			t.Errorf("%s starts no plimsoll", name)
			continue
		}
		args := strings.Fields(strings.ReplaceAll(m[1], "/etc/plimsoll", configs))
		if err := parseArgs(args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if parseArgs(append(args, "--no-such-flag")) == nil {
			t.Errorf("%s: a flag that does not exist is taken", name)
		}
	}
}

// parseArgs reads a command line without running it.
func parseArgs(args []string) error {
	_, err := parsed(args)
	return err
}

// parsed returns the flags of a command line.
func parsed(args []string) (*commands, error) {
	root := &commands{}
	parser, err := newParser(root, process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	if err == nil {
		_, err = parser.Parse(args)
	}
	return root, err
}

// TestSystemdTakesTheUnits, where systemd-analyze is.
func TestSystemdTakesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze on this machine")
	}
	program, err := exec.LookPath("plimsoll")
	if err != nil {
		t.Fatal(err)
	}
	for name, unit := range deployed(t, "systemd/*.service", 4) {
		file := filepath.Join(t.TempDir(), filepath.Base(name))
		// The program and its user are not installed here.
		unit = strings.NewReplacer("/usr/local/bin/plimsoll", program, "User=plimsoll", "User=root").Replace(unit)
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
		if err != nil || strings.Contains(string(said), filepath.Base(name)) {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `([a-z]+_[a-z_]*\\*?)` \\|.*\\| (.*) \\|$")
	metricName = regexp.MustCompile(`\b(?:plimsoll|yunikorn|process|go)_[a-z_]+`)
	alertName  = regexp.MustCompile("`(Plimsoll[A-Za-z]+)`")
)

// listedMetrics returns the metrics that have a row in the page.
func listedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	listed := map[string]bool{}
	for _, m := range metricRow.FindAllStringSubmatch(operatingPage(t), -1) {
		if listed[m[1]] {
			t.Errorf("%s stands twice", m[1])
		}
		listed[m[1]] = true
	}
	return listed
}

// TestTableOfMetricsIsWhatTheRolesServe: no metric is missing, and there is none that does not
// exist.
func TestTableOfMetricsIsWhatTheRolesServe(t *testing.T) {
	t.Parallel()
	listed := listedMetrics(t)
	if os.Getuid() != 0 {
		delete(listed, "plimsoll_agent_qos_tasks_held") // without root nothing is taken from a task
	}
	s, leader := newSite(t), strings.Replace(freePorts(t, 1)[0], "localhost", "127.0.0.1", 1)
	served := func(address, role string) map[string]bool { return servedMetrics(t, address, role) }
	start(t, "coordinator", "--data", s.path("store"), "--listen", leader).says("msg=leading")
	gateway := start(t, "gateway", "--data", s.path("gateway"), "--listen", s.address, "--leader", leader)
	gateway.says("following the leader")
	start(t, "agent", "--data", s.path(
		"agent",
	), "--gateways", s.address, "--node", "n1", "--capacity", "cpu=4;memory=8Gi",
		"--extended", "--extended-warm-up", "1s", "--qos-interval", "200ms")
	s.nodeReady("n1")
	makeMetricsOfPolicies(s)
	evaluator := useEvaluator(s)
	historian := "unix:" + s.path("historian.sock")
	keeper := start(t, "historian", "--data", s.path("historian"), "--listen", historian, "--server", s.address)
	keeper.says("msg=serving")
	eventually(t, "a question to the historian", func() error {
		_, stderr, code := plimsollAt(t.Context(), historian, "history", "status")
		if code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	all := map[string]bool{}
	eventually(t, "metrics", func() error {
		maps.Copy(all, served(leader, "coordinator"))
		maps.Copy(all, served(s.address, "gateway"))
		maps.Copy(all, served("unix:"+s.path("agent", "agent.sock"), "agent"))
		maps.Copy(all, served(evaluator, "evaluator"))
		maps.Copy(all, served(historian, "historian"))
		if missing := without(listed, all); len(missing) > 0 {
			return fmt.Errorf("no role serves %v", missing)
		}
		return nil
	})
	if missing := without(all, listed); len(missing) > 0 {
		t.Errorf("docs/operating.md does not have %v", missing)
	}
}

// TestTableOfMetricsHasThoseOfDev.
func TestTableOfMetricsHasThoseOfDev(t *testing.T) {
	t.Parallel()
	listed := listedMetrics(t)
	s := newSite(t)
	s.dev()
	all := servedMetrics(t, s.address, "coordinator", "gateway", "agent", "historian")
	if missing := without(all, listed); len(missing) > 0 {
		t.Errorf("docs/operating.md does not have %v", missing)
	}
}

// makeMetricsOfPolicies makes a rule that is always above its line, and a task to act on.
func makeMetricsOfPolicies(s *site) {
	s.t.Helper()
	file := s.write("policies.yaml", `
{kind: Action, name: slow-down, weight: {idle: true}, throttle: {minRatio: 50, step: 10}}
---
{kind: TaskQOS, name: all, match: [{scope: class, operator: In, values: [best-effort]}], allowed: [slow-down]}
---
{kind: NodeQOS, name: low, rules: [{name: cpu, metric: cpu_total_usage, waterline: 1m, action: slow-down}]}
`)
	if _, stderr, code := s.cli("policy", "apply", "-f", file); code != 0 {
		s.t.Fatal(stderr)
	}
	s.submit(
		"burn", 1, "while :; do :; done", `, "class": "best-effort", "resources": {"cpu": "500m", "memory": "64Mi"}`,
	)
}

// useEvaluator starts an evaluator and places with it, and returns its address.
func useEvaluator(s *site) string {
	s.t.Helper()
	address := strings.Replace(freePorts(s.t, 1)[0], "localhost", "127.0.0.1", 1)
	s.evaluator(address)
	order := s.write("request.json", `{"resources": {"cpu": 1}}`)
	if _, stderr, code := run(s.t, "place", order, "--evaluators", address); code != 0 {
		s.t.Fatal(stderr)
	}
	return address
}

// without returns the names of one set that another does not have. go_* stands for all that begin
// so.
func without(set, other map[string]bool) (names []string) {
	for name := range set {
		if !other[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// cellWords begin the names of the metrics of the cell, which the coordinator that leads serves.
var cellWords = []string{"archive", "jobs", "nodes", "queue", "task", "tasks"}

// servedMetrics reads the names of the metrics at an address. All that are not Plimsoll's are one
// name for each library, and those of Plimsoll must be of the roles.
func servedMetrics(t *testing.T, address string, roles ...string) map[string]bool {
	t.Helper()
	transport, url := &http.Transport{DisableKeepAlives: true}, "http://"+address+"/metrics"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		url = "http://localhost/metrics"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read to its end
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", address, response.Status, err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[1] != "TYPE" {
			continue
		}
		library, rest, _ := strings.Cut(words[2], "_")
		if library == "yunikorn" { // counts of the leader, with YuniKorn's names
			library, rest = "plimsoll", "coordinator_"+rest
		}
		if library != "plimsoll" {
			names[library+"_*"] = true
			continue
		}
		role, _, _ := strings.Cut(rest, "_")
		if slices.Contains(cellWords, role) {
			role = "coordinator"
		}
		if !slices.Contains(roles, role) {
			t.Errorf("%v serves %s", roles, words[2])
		}
		names[words[2]] = true
	}
	return names
}

// ruleFile is a file of alerting rules.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct{ Alert, Expr, For string }
	}
}

// TestAlertsAreOfMetricsThatExist, and every alert has a row that says what to do about it, and
// stands beside its metric.
func TestAlertsAreOfMetricsThatExist(t *testing.T) {
	page := operatingPage(t)
	beside, listed := map[string]string{}, listedMetrics(t)
	for _, m := range metricRow.FindAllStringSubmatch(page, -1) {
		for _, a := range alertName.FindAllStringSubmatch(m[2], -1) {
			beside[a[1]] = m[1]
		}
	}
	rules := map[string]string{}
	for name, text := range deployed(t, "prometheus/*.yaml", 1) {
		var file ruleFile
		if err := yaml.UnmarshalWithOptions([]byte(text), &file, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				rules[r.Alert] = r.Expr
			}
		}
	}
	for alert, expr := range rules {
		for _, metric := range metricName.FindAllString(expr, -1) {
			library, _, _ := strings.Cut(metric, "_")
			if !listed[strings.TrimSuffix(metric, "_bucket")] && !listed[library+"_*"] {
				t.Errorf("%s asks for %s, which does not exist", alert, metric)
			}
		}
		metric := strings.TrimSuffix(beside[alert], "*")
		if alert == "PlimsollRoleDown" {
			metric = "up" // of Prometheus itself
		}
		if metric == "" || !strings.Contains(expr, metric) {
			t.Errorf("%s stands beside %q, and is %s", alert, beside[alert], expr)
		}
		if !strings.Contains(page, "\n| `"+alert+"` | ") {
			t.Errorf("the page does not say what to do about %s", alert)
		}
	}
	for _, m := range alertName.FindAllStringSubmatch(page, -1) {
		if rules[m[1]] == "" {
			t.Errorf("there is no rule %s", m[1])
		}
	}
}
