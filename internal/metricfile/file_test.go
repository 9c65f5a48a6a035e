package metricfile

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// The example file has every field, and its metrics can be registered.
func TestTheExampleLoads(t *testing.T) {
	metrics, err := Load("../../examples/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const names = "open_connections request_latency_p99 requests_per_second scratch_used_percent"
	if got := strings.Join(nodeqos.MetricNames(metrics), " "); got != names {
		t.Errorf("names: %s", got)
	}
	if m := metrics[0]; m.PerTask || m.Every != 10*time.Second || m.Timeout != 2*time.Second ||
		!m.Evictable || m.Throttleable || m.ActionPriority != 4 {
		t.Errorf("the first is %+v", m)
	}
	if m := metrics[1]; !m.PerTask || m.Sum || !m.Throttleable || m.ThrottleQuantified || m.Sort == nil {
		t.Errorf("the second is %+v", m)
	}
	if m := metrics[2]; !m.Sum || !m.EvictQuantified {
		t.Errorf("the third is %+v", m)
	}
	if m := metrics[3]; !m.Sum || !m.ThrottleQuantified || m.Throttle == nil || m.Restore == nil {
		t.Errorf("the fourth is %+v", m)
	}
	if m := metrics[4]; !m.OnlySort || m.Sort == nil {
		t.Errorf("the fifth is %+v", m)
	}
	if _, err := nodeqos.New(nodeqos.Config{Dir: t.TempDir(), Metrics: metrics}, nodeqos.Deps{
		Tasks: func() []nodeqos.Task { return nil }, Report: func(plimsoll.NodeReport) {},
		Evict: func(context.Context, string, int32, time.Duration, string) error { return nil },
	}); err != nil {
		t.Error(err)
	}
}

// A fault in a file of metrics is reported with the file, the place and the fix.
func TestBadMetricsAreRefused(t *testing.T) {
	const prom = "prometheus: {port: metrics.port, series: x, perTask: true}"
	for _, c := range []struct{ name, text, want string }{
		{"no list", "name: a", "metrics.yaml"},
		{
			"the line of an entry", "- {name: a, command: [/bin/a]}\n- name: b\n  command: [echo]\n",
			"metrics.yaml:2: entry 2, b: command",
		},
		{"an unknown key", "- {name: a, command: [/bin/a], sort: [kind]}", `sort: "kind" is no key; use class, `},
		{"no key", "- {name: a, command: [/bin/a], sort: []}", "sort: is empty"},
		{"a built-in metric and more", "- {name: load, sort: [class], help: x}", "only sort can be given"},
		{
			"two orders", "- {name: load, sort: [class]}\n- {name: load, sort: [cpu]}",
			"metrics.yaml:2: entry 2, load: metric: load: its order is given twice",
		},
		{
			"throttled by an unknown amount", "- {name: a, throttleable: true, throttleQuantified: true, " + prom + "}",
			"throttleQuantified: needs perTask: true and aggregate: sum",
		},
		{
			"not throttleable", "- {name: a, aggregate: sum, throttleQuantified: true, " + prom + "}",
			"is throttleable or",
		},
		{"unknown field", "- {name: a, comand: [/bin/a]}", `metrics.yaml:1: `},
		{"second document", "- {name: a, command: [/bin/a]}\n---\n- {name: b, command: [/bin/a]}", "second document"},
		{"no name", "- {command: [/bin/a]}", "is not a possible name"},
		{"a built-in name", "- {name: load, command: [/bin/a]}", "registered already"},
		{"a name twice", "- {name: a, command: [/bin/a]}\n- {name: a, command: [/bin/b]}", "registered already"},
		{"no source", "- {name: a}", "give one of them"},
		{"two sources", "- {name: a, command: [/bin/a], " + prom + "}", "give one of them"},
		{"a shell line", "- {name: a, command: [echo 1]}", "whole path"},
		{"an empty argument", `- {name: a, command: [/bin/a, ""]}`, "none of them empty"},
		{"priority", "- {name: a, command: [/bin/a], actionPriority: 11}", "action priority"},
		{"aggregate", "- {name: a, aggregate: mean, " + prom + "}", "use max or sum"},
		{"sum of one", "- {name: a, aggregate: sum, command: [/bin/a]}", "perTask: true"},
		{"every", "- {name: a, every: 5, command: [/bin/a]}", "a duration with its unit"},
		{"too often", "- {name: a, every: 1ms, command: [/bin/a]}", "every is 1ms"},
		{"longer than every", "- {name: a, every: 1s, timeout: 2s, command: [/bin/a]}", "timeout is 2s"},
		{
			"quantified by a maximum", "- {name: a, evictable: true, evictQuantified: true, " + prom + "}",
			"aggregate: sum",
		},
		{
			"quantified and not possible", "- {name: a, aggregate: sum, evictQuantified: true, " + prom + "}",
			"evictable too",
		},
		{"no endpoint", "- {name: a, prometheus: {series: x}}", "port, socket or url"},
		{"two endpoints", "- {name: a, prometheus: {port: p, socket: /s, series: x}}", "port, socket or url"},
		{"series", "- {name: a, prometheus: {port: p, perTask: true}}", "prometheus.series"},
		{"not of tasks", "- {name: a, prometheus: {port: p, series: x}}", "perTask: true"},
		{"a socket somewhere", "- {name: a, prometheus: {socket: s, series: x}}", "whole path"},
		{"a path with a url", "- {name: a, prometheus: {url: 'http://a/b', path: /c, series: x}}", "part of the url"},
		{"no address", "- {name: a, prometheus: {url: 'file:///etc/passwd', series: x}}", "is no address"},
		{"an open brace", "- {name: a, prometheus: {url: 'http://a/{b', series: x}}", "{name} stands for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse("metrics.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "metrics.yaml") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
				t.Errorf("its code is %v", plimsoll.CodeOf(err))
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there was read")
	}
	if list, err := parse("empty.yaml", nil); err != nil || len(list) != 0 {
		t.Errorf("an empty file: %v, %v", list, err)
	}
}

const exposition = `# HELP app_latency what it is
# TYPE app_latency gauge
app_latency{handler="main",zone="a"} 12.5
app_latency{handler="main",zone="b"} 40 1700000000000
app_latency{handler="admin"} 99
# TYPE app_latency_total counter
app_latency_total 7
# TYPE hist histogram
hist_bucket{le="1"} 1
hist_bucket{le="+Inf"} 2
hist_sum 3
hist_count 2
nan NaN
`

// The matching series are combined as the metric says: the largest value, or the sum.
func TestASeriesIsFound(t *testing.T) {
	for _, c := range []struct {
		series string
		labels [][2]string
		sum    bool
		want   float64
		err    string
	}{
		{series: "app_latency", want: 99},
		{series: "app_latency", labels: [][2]string{{"handler", "main"}}, want: 40},
		{series: "app_latency", labels: [][2]string{{"handler", "main"}}, sum: true, want: 52.5},
		{series: "app_latency", labels: [][2]string{{"handler", "main"}, {"zone", "a"}}, want: 12.5},
		{
			series: "app_latency", labels: [][2]string{{"handler", "none"}},
			err: `does not tell app_latency{handler="none"}`,
		},
		{series: "app_latency_total", want: 7},
		{series: "app_lat", err: "does not tell"},
		{series: "hist", err: "does not tell"},
		{series: "nan", want: math.NaN()},
	} {
		s := &scrape{series: c.series, labels: c.labels, sum: c.sum}
		text, err := s.lines(strings.NewReader(exposition))
		value := 0.0
		if err == nil {
			value, err = s.find(text)
		}
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %v: got %v, %v; want %q", c.series, c.labels, value, err, c.err)
			}
		case err != nil, value != c.want && !(math.IsNaN(value) && math.IsNaN(c.want)):
			t.Errorf("%s %v: got %v, %v; want %v", c.series, c.labels, value, err, c.want)
		}
	}
}

// Each task is asked at the port that its job names. A task without a port does not count, and the
// value of a task that does not answer is missing. A label cannot lead to anything but a port.
func TestTasksAreScrapedAtTheirPorts(t *testing.T) {
	serve := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				t.Errorf("asked for %s", r.URL)
			}
			fmt.Fprint(w, text)
		}))
		t.Cleanup(s.Close)
		_, port, err := net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	metrics, err := parse("m.yaml", []byte("- name: connections\n  aggregate: sum\n  evictable: true\n  evictQuantified: true\n"+
		"  prometheus: {port: metrics.port, series: conns, perTask: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		port, want string
		value      float64
		told       bool
	}{
		{port: serve("conns 10\n"), value: 10, told: true},
		{port: serve("conns{x=\"1\"} 20\nconns{x=\"2\"} 5\n"), value: 25, told: true},
		{port: "1", told: true, want: "refused"},
		{port: "1/@example.com:80", told: true, want: "cannot be part of an address"},
		{},
		{port: serve("conns many\n"), told: true, want: "no Prometheus text"},
		{port: serve(strings.Repeat("conns{x=\"1\"} 20\n", 1<<16)), told: true, want: "more than 262144 bytes"},
	} {
		task := &nodeqos.Task{ID: "a"}
		if c.port != "" {
			task.Labels = map[string]string{"metrics.port": c.port}
		}
		value, told, err := metrics[0].Measure(t.Context(), task)
		if told != c.told || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("port %q: %v, %v, %v; want %v, %q", c.port, value, told, err, c.told, c.want)
		}
		if err == nil && value != c.value {
			t.Errorf("port %q: %v, want %v", c.port, value, c.value)
		}
	}
}

// A unix socket is found by the task's labels, and a redirect is not followed.
func TestUnixSocketsAndRedirects(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "shop"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "shop", "m.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/metrics", http.StatusFound)
			return
		}
		fmt.Fprint(w, "queue 3\n")
	}))
	_ = s.Listener.Close() // another listener is served
	s.Listener = listener
	s.Start()
	defer s.Close()
	task := &nodeqos.Task{ID: "a", Labels: map[string]string{"app": "shop"}}
	for _, c := range []struct {
		path  string
		label string
		want  string
	}{
		{"/metrics", "shop", ""},
		{"/moved", "shop", "302"},
		{"/metrics", "..", "cannot be part of an address"},
		{"/metrics", "sho/p", "cannot be part"},
	} {
		e, err := newEndpoint(filepath.Join(dir, "{app}", "m.sock"), "http://localhost"+c.path)
		if err != nil {
			t.Fatal(err)
		}
		task.Labels["app"] = c.label
		value, ok, err := (&scrape{endpoint: e, series: "queue"}).measure(t.Context(), task)
		if c.want == "" && (err != nil || !ok || value != 3) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s for %s: %v, %v, %v; want %q", c.path, c.label, value, ok, err, c.want)
		}
	}
}

// A command prints one number. A command that prints anything else, fails, or takes too long has
// no value; it leaves no process behind.
func TestCommands(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no shell to run")
	}
	for _, c := range []struct {
		script string
		value  float64
		want   string
	}{
		{"echo ' 12.5 '", 12.5, ""},
		{"echo 1e3", 1000, ""},
		{"echo twelve", 0, `printed "twelve"`},
		{"true", 0, `printed ""`},
		{"echo 1; echo 2", 0, "one number"},
		{"echo out of order >&2; exit 3", 0, "exit status 3: out of order"},
		{"i=0; while [ $i -lt 2000 ]; do echo 12345; i=$((i+1)); done", 0, "more than 4096 bytes"},
		{"while :; do :; done", 0, "deadline"},
		{"(while :; do :; done) & wait", 0, "deadline"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if c.want == "deadline" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		value, _, err := command([]string{"/bin/sh", "-c", c.script})(ctx, nil)
		cancel()
		if c.want == "" && (err != nil || value != c.value) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, %v; want %v %q", c.script, value, err, c.value, c.want)
		}
	}
}

// Every answer of an endpoint is a value or an error.
func FuzzScrape(f *testing.F) {
	f.Add([]byte(exposition))
	f.Add([]byte("app_latency{"))
	f.Add([]byte("app_latency{handler=\"\\"))
	f.Add([]byte("# TYPE app_latency histogram\napp_latency{le=\"x\"} 1\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		s := &scrape{series: "app_latency"}
		text, err := s.lines(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		if _, err := s.find(text); err != nil {
			_ = err.Error() // Error must not panic
		}
	})
}

// Every file of metrics is read or refused.
func FuzzMetrics(f *testing.F) {
	if data, err := os.ReadFile("../../examples/metrics.yaml"); err == nil {
		f.Add(data)
	}
	f.Add([]byte("- {name: a, prometheus: {url: '{}', series: x}}"))
	f.Add([]byte("- null\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if _, err := parse("fuzz.yaml", data); err != nil {
			_ = err.Error() // Error must not panic
		}
	})
}

// The file sets the order in which tasks are acted on, also for a built-in metric. It also sets
// whether throttling can be quantified.
func TestAFileSetsSortersAndWhatThrottlingReleases(t *testing.T) {
	metrics, err := parse("m.yaml", []byte(`
- name: requests
  aggregate: sum
  throttleable: true
  throttleQuantified: true
  sort: [class, running-time, value]
  prometheus: {port: p, series: x, perTask: true}
- name: cpu_total_usage
  sort: [class, running-time]
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := nodeqos.MetricNames(metrics); len(got) != 1 || got[0] != "requests" {
		t.Errorf("announced are %v", got)
	}
	registry, err := nodeqos.NewRegistry(metrics)
	if err != nil {
		t.Fatal(err)
	}
	young := qos.Task{ID: "young", Started: 2, CPU: 1, CPUKnown: true, Values: map[string]int64{"requests": 1}}
	old := qos.Task{ID: "old", Started: 1, CPU: 9, CPUKnown: true, Values: map[string]int64{"requests": 9}}
	for _, name := range []string{"requests", "cpu_total_usage"} {
		if order := registry.Find(name).Sort.Sort([]qos.Task{old, young}); order[0] != 1 {
			t.Errorf("%s: the older comes first", name)
		}
	}
	if order := registry.Find("cpu_total_utilization").Sort.Sort([]qos.Task{old, young}); order[0] != 0 {
		t.Error("a metric whose order was not given has another one")
	}
	m := registry.Find("requests")
	task := qos.Task{
		CPU: qos.Core, CPUKnown: true, Values: map[string]int64{"requests": 1000},
		Groups: []qos.Group{{Name: "g", CPU: qos.Core, Quota: qos.Unlimited}},
	}
	if _, release := m.Throttle(&task, qos.Throttling{Step: 20}); !m.ThrottleQuantified || release != 200 {
		t.Errorf("a fifth of its processor time releases %d of 1000", release)
	}
}
