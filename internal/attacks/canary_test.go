package attacks

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// canary submits a job each second and reads it back, and records the durations.
type canary struct {
	done sync.WaitGroup
	stop context.CancelFunc

	mu       sync.Mutex
	took     []probe
	failures []string
	doing    func() string // name of the present attack
}

// probe is one submit and read.
type probe struct {
	took   time.Duration
	during string
}

// The canary is a process of its own, so that it gets the processor before the attackers.
const (
	canaryServer = "ATTACKS_CANARY_SERVER"
	canaryToken  = "ATTACKS_CANARY_TOKEN_FILE"
)

// startCanary starts the canary. It ends with the test.
func (f *fleet) startCanary(doing func() string) *canary {
	f.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &canary{stop: stop, doing: doing}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(f.environment(), canaryServer+"="+f.gateway, canaryToken+"="+f.path("gateway", "user.token"))
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	c.done.Go(func() {
		for lines := bufio.NewScanner(said); lines.Scan(); {
			took, failure, ok := strings.Cut(lines.Text(), " ")
			d, err := time.ParseDuration(took)
			if err == nil && ok {
				c.note(d, failure)
			}
		}
		_ = cmd.Wait() // it was killed
	})
	f.t.Cleanup(c.land)
	f.lowerPriority()
	return c
}

// lowerPriority lowers the priority of this process below that of the fleet and the canary,
// because it attacks them from the same machine.
func (f *fleet) lowerPriority() {
	f.t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, thread := range threads { // later threads inherit it
		id, err := strconv.Atoi(thread.Name())
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, id, 10)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			f.t.Fatal(err)
		}
	}
}

func (c *canary) land() {
	c.stop()
	c.done.Wait()
}

// runCanary is the canary's process. It writes a line for each second: how long a submit and a read
// took, and the error.
func runCanary() error {
	ctx := context.Background()
	c, err := client.New(client.Config{
		Server: os.Getenv(canaryServer), TokenFile: os.Getenv(canaryToken), RetryBudget: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 0; ; n++ {
		began := time.Now()
		failure := ""
		if err := submitAndRead(ctx, c, fmt.Sprintf("canary-%d", n)); err != nil {
			failure = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Printf("%s %s\n", time.Since(began), failure); err != nil {
			return err // the reader of the output is gone
		}
		pause(ctx, time.Until(began.Add(time.Second)))
	}
}

// submitAndRead submits a job of one task and reads it.
func submitAndRead(ctx context.Context, c *client.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	spec := plimsoll.JobSpec{ID: id, Owner: "canary", Queue: "root.canary", Groups: []plimsoll.GroupSpec{{
		Name: "main", Count: 1, Command: []string{"true"},
	}}}
	if _, err := c.SubmitJob(ctx, spec); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	if _, err := c.Job(ctx, id); err != nil {
		return fmt.Errorf("read what was submitted: %w", err)
	}
	return nil
}

func (c *canary) note(took time.Duration, failure string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, probe{took, c.doing()})
	if failure != "" {
		c.failures = append(c.failures, fmt.Sprintf("during %s: %s", c.doing(), failure))
	}
}

// check wants the canary to have been answered each time. If the run measures, 99 of 100 answers
// must take less than a second.
func (c *canary) check(t *testing.T, measures bool) {
	t.Helper()
	c.land()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) == 0 {
		t.Fatal("the canary was never answered")
	}
	slices.SortFunc(c.took, func(a, b probe) int { return cmp.Compare(a.took, b.took) })
	p99 := c.took[(len(c.took)*99+99)/100-1].took
	t.Logf("canary: %d submits and reads, median %s, p99 %s, %d failed",
		len(c.took), c.took[len(c.took)/2].took.Round(time.Microsecond), p99.Round(time.Microsecond), len(c.failures))
	for _, slow := range c.took[max(0, len(c.took)-5):] {
		t.Logf("%s during %s", slow.took.Round(time.Microsecond), slow.during)
	}
	for _, failure := range c.failures {
		t.Errorf("the canary got an error %s", failure)
	}
	if measures && p99 > time.Second {
		t.Errorf("99 of 100 submits and reads took up to %s; less than 1s is wanted", p99)
	}
}
