package gatewaybench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll"
)

// serverVariable makes the test binary a server: role and leader.
const serverVariable = "PLIMSOLL_GATEWAYBENCH_SERVER"

// TestMain runs the tests, or a server of one of them.
func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	s := Server{Role: os.Args[1]}
	for i := 2; i+1 < len(os.Args); i += 2 {
		if os.Args[i] == "--leader" {
			s.Leader = os.Args[i+1]
		}
	}
	if err := s.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// thisBinary returns the command that makes the test binary a server.
func thisBinary(t testing.TB) []string {
	t.Helper()
	t.Setenv(serverVariable, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self}
}

// children returns the processes that this one has started.
func children(t *testing.T) (pids []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		data, err := os.ReadFile(list) //nolint:gosec // of this process
		if err == nil {                // a thread may have ended
			pids = append(pids, strings.Fields(string(data))...)
		}
	}
	return pids
}

func TestEveryFigureIsMeasuredAndNoProcessIsLeft(t *testing.T) {
	var told []string
	r, err := Run(t.Context(), Config{
		Server: thisBinary(t), Duration: time.Second, Loads: []int{50}, Connections: []int{4},
		Tell: func(text string) { told = append(told, text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Capacity <= 0 || r.AnswerBytes < 250_000 || r.AnswerBytes > 280_000 || len(told) < 5 {
		t.Errorf("the report begins with %+v, and %q was told", r, told)
	}
	served := []string{}
	for _, l := range r.Loads {
		served = append(served, l.Served)
		if l.Percent != 50 || l.P50 <= 0 || l.P80 < l.P50 || l.P99 < l.P80 || l.CPU <= 0 || l.Answered == 0 {
			t.Errorf("a row is %+v", l)
		}
	}
	if !slices.Equal(served, []string{LeaderEncodes, GatewayStrict, GatewayEventual}) {
		t.Errorf("the servers are %q", served)
	}
	if b := r.Barrier; b.Reads == 0 || b.Strict <= 0 || b.Eventual <= 0 {
		t.Errorf("the barrier is %+v", b)
	}
	if len(r.Bare) != 2 || r.Bare[0].Ratio <= 0 || r.Bare[1].Served != GatewayStrict {
		t.Errorf("beside a bare handler: %+v", r.Bare)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes %q are left", left)
	}
}

func TestARunThatIsInterruptedStopsItsProcesses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	_, err := Run(ctx, Config{Server: thisBinary(t), Duration: time.Minute, Tell: func(text string) {
		if strings.HasPrefix(text, "measuring the rate") {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("after %s processes %q are left", time.Since(began), left)
	}
}

func TestAServerEndsWithItsInput(t *testing.T) {
	cmd := exec.Command(thisBinary(t)[0], roleLeader) //nolint:gosec // this binary
	if out, err := cmd.CombinedOutput(); err != nil { // its input is /dev/null
		t.Errorf("it ended with %v: %s", err, out)
	}
	err := Server{Role: "clerk"}.Serve(t.Context(), strings.NewReader(""), os.Stderr)
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("an unknown role: %v", err)
	}
}

func TestAServerThatCannotServeIsReported(t *testing.T) {
	_, err := Run(t.Context(), Config{Server: []string{"/bin/false"}})
	if err == nil || !strings.Contains(err.Error(), "ended before it served") {
		t.Errorf("it ended with %v", err)
	}
}

func TestAWrongSettingIsNamed(t *testing.T) {
	good := Config{Server: []string{"x"}}
	for field, change := range map[string]func(*Config){
		"server":        func(c *Config) { c.Server = nil },
		"--duration":    func(c *Config) { c.Duration = -time.Second },
		"--load":        func(c *Config) { c.Loads = []int{50, 0} },
		"--connections": func(c *Config) { c.Connections = []int{5000} },
	} {
		c := good
		change(&c)
		var wrong *plimsoll.Error
		if err := c.Validate(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestPlannedRequestsHaveTheirRateAndAreTheSameInEachRun(t *testing.T) {
	at := planned(1000, 10*time.Second)
	if n := len(at); n < 9500 || n > 10500 {
		t.Errorf("%d requests in ten seconds at a rate of 1,000", n)
	}
	if !slices.IsSorted(at) || at[len(at)-1] >= 10*time.Second || !slices.Equal(at, planned(1000, 10*time.Second)) {
		t.Error("they are not in order, or others in the second run")
	}
}

func TestARequestWithoutAnAnswerCountsWithItsWholeWait(t *testing.T) {
	at := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	o := settle([]time.Duration{time.Millisecond, 0, 0}, at, 7*time.Second)
	if o.unanswered != 2 || o.at(0) != 1 || o.at(50) != 4000 || o.at(99) != 5000 {
		t.Errorf("got %+v", o)
	}
}

// BenchmarkGateway measures what `plimsoll bench gateway` does, once.
func BenchmarkGateway(b *testing.B) {
	r, err := Run(b.Context(), Config{Server: thisBinary(b)})
	if err != nil {
		b.Fatal(err)
	}
	report := func(name string, figures map[string]float64) {
		b.Run(name, func(b *testing.B) {
			for unit, value := range figures {
				b.ReportMetric(value, unit)
			}
			b.ReportMetric(0, "ns/op") // it is left out
		})
	}
	for _, l := range r.Loads {
		name := strings.ReplaceAll(strings.ReplaceAll(l.Served, ", ", "-"), " ", "-")
		report(fmt.Sprintf("load=%d/%s", l.Percent, name), map[string]float64{
			"p50-ms": l.P50, "p80-ms": l.P80, "p99-ms": l.P99, "cpu-µs/op": l.CPU, "unanswered": float64(l.Unanswered),
		})
	}
	report("barrier", map[string]float64{"over-ms": r.Barrier.Over})
	for _, bare := range r.Bare {
		name := strings.ReplaceAll(bare.Served, ", ", "-")
		report(fmt.Sprintf("bare/%s/connections=%d", name, bare.Connections), map[string]float64{
			"cpu-µs/op": bare.CPU, "x-bare": bare.Ratio,
		})
	}
}
