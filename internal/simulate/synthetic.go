package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Synthetic describes a workload that is drawn.
type Synthetic struct {
	Seed     uint64
	Jobs     int           // how many come
	Users    int           // whose jobs they are; user n has about 1/n of those of user 1
	Span     time.Duration // time in which they come; their gaps are exponential
	Tasks    int           // most tasks of a job; their number is drawn evenly on a logarithmic scale
	Runtime  time.Duration // mean of a task; the times are log-normal
	Failures float64       // part of the tasks that fail
}

// DefaultSynthetic has the values that a description leaves out.
var DefaultSynthetic = Synthetic{
	Jobs: 2000, Users: 12, Span: 24 * time.Hour, Tasks: 50, Runtime: 20 * time.Minute,
}

// Validate returns an error about the first value that is not possible.
func (s *Synthetic) Validate() error {
	for _, v := range []struct {
		name  string
		wrong bool
		fix   string
	}{
		{"jobs", s.Jobs < 1 || s.Jobs > 1_000_000, "give 1 to 1000000"},
		{"users", s.Users < 1 || s.Users > 10_000, "give 1 to 10000"},
		{"span", s.Span < time.Second || s.Span > 10_000*time.Hour, "give a duration from 1s to 10000h"},
		{"tasks", s.Tasks < 1 || s.Tasks > 100_000, "give 1 to 100000"},
		{"runtime", s.Runtime < time.Second || s.Runtime > 10_000*time.Hour, "give a duration from 1s to 10000h"},
		{"failures", !(s.Failures >= 0 && s.Failures <= 1), "give a part from 0 to 1"},
	} {
		if v.wrong {
			return plimsoll.Invalid("synthetic."+v.name, "is not possible; %s", v.fix)
		}
	}
	return nil
}

// sigma of the logarithm of the runtimes: the longest percent takes about ten times the mean.
const sigma = 1.2

// Synthesize draws a workload without nodes. The user n submits to a leaf named user-n, or to one
// of all leaves in turn; see Config.
func Synthesize(s Synthetic) *Workload {
	rng := rand.New(rand.NewPCG(s.Seed, 0x73796e))
	w := &Workload{Name: fmt.Sprintf("synthetic, %d jobs of %d users", s.Jobs, s.Users)}
	weights := make([]float64, s.Users)
	total := 0.0
	for i := range weights {
		weights[i] = 1 / float64(i+1)
		total += weights[i]
	}
	gap := float64(s.Span) / float64(s.Jobs)
	at := 0.0
	for i := range s.Jobs {
		at += rng.ExpFloat64() * gap
		user, left := 0, rng.Float64()*total
		for ; user < s.Users-1 && left >= weights[user]; user++ {
			left -= weights[user]
		}
		a := Arrival{
			At: int64(at), Job: "job-" + padded(i, 6), Owner: fmt.Sprintf("user-%d", user+1),
			Queue: fmt.Sprintf("user-%d", user+1),
		}
		cpu := int64(1) << rng.IntN(4)
		a.Groups = single(
			plimsoll.Resources{plimsoll.CPU: 1000 * cpu, plimsoll.Memory: cpu * int64(1+rng.IntN(8)) << 30},
		)
		mean := math.Exp(sigma*rng.NormFloat64() - sigma*sigma/2)
		for range int(math.Exp(rng.Float64() * math.Log(float64(s.Tasks)+0.999))) {
			runtime := float64(s.Runtime) * mean * (0.8 + 0.4*rng.Float64())
			run := Attempt{Runtime: max(int64(runtime), second), Result: plimsoll.ResultSucceeded}
			if rng.Float64() < s.Failures {
				run.Result = plimsoll.ResultFailed
			}
			a.Groups[0].Tasks = append(a.Groups[0].Tasks, Task{run})
		}
		w.Arrivals = append(w.Arrivals, a)
	}
	return w
}
