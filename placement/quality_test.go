package placement_test

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// tracePod is a line of a pod list of the openb trace.
type tracePod struct {
	cpu, memory int64
	gpus, share int64    // devices, and thousandths of each
	models      []string // that will do; none: any
}

// milli returns the thousandths of devices that the pod asks for in all.
func (p *tracePod) milli() int64 { return p.gpus * p.share }

// traceNode is a line of the node list.
type traceNode struct {
	name, model       string
	cpu, memory, gpus int64
}

// readTrace reads every stride-th node and pod of the openb trace; the test is skipped if the trace
// is not there.
func readTrace(tb testing.TB, list string, stride int) (nodes []traceNode, pods []tracePod) {
	tb.Helper()
	dir := cmp.Or(os.Getenv("PLACEMENT_TRACES"), filepath.Join("..", "..", "shared", "traces", "openb"))
	if _, err := os.Stat(dir); err != nil {
		tb.Skipf("the openb trace is not at %s; say where with PLACEMENT_TRACES", dir)
	}
	for _, row := range readCSV(tb, filepath.Join(dir, "openb_node_list_all_node.csv"), stride) {
		nodes = append(nodes, traceNode{
			name: row["sn"], model: row["model"], cpu: number(tb, row["cpu_milli"]),
			memory: number(tb, row["memory_mib"]) << 20, gpus: number(tb, row["gpu"]),
		})
	}
	for _, row := range readCSV(tb, filepath.Join(dir, "openb_pod_list_"+list+".csv"), stride) {
		p := tracePod{
			cpu: number(tb, row["cpu_milli"]), memory: number(tb, row["memory_mib"]) << 20,
			gpus: number(tb, row["num_gpu"]), share: number(tb, row["gpu_milli"]),
		}
		if spec := row["gpu_spec"]; spec != "" {
			p.models = strings.Split(spec, "|")
		}
		pods = append(pods, p)
	}
	return nodes, pods
}

func readCSV(tb testing.TB, path string, stride int) (rows []map[string]string) {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	lines, err := csv.NewReader(file).ReadAll()
	if err := errors.Join(err, file.Close()); err != nil {
		tb.Fatal(err)
	}
	for i := 1; i < len(lines); i += stride {
		row := map[string]string{}
		for k, name := range lines[0] {
			row[name] = lines[i][k]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(tb testing.TB, text string) int64 {
	tb.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// devices is how many thousandths are free of each device of each server. A share of a device comes
// from one device, and a whole device is one that nobody shares: that is more than the sum of
// thousandths, which is all that a custom resource holds. It stands in the chain as one more
// filter, for every policy alike.
type devices map[string][]int64

// pick returns the devices that a pod would get: of a share the fullest that has room, so that
// whole ones stay whole.
func (d devices) pick(server string, p *tracePod) (chosen []int, ok bool) {
	free := d[server]
	if p.milli() == 0 {
		return nil, true
	}
	for i := range free {
		switch {
		case free[i] < p.share:
		case p.share == 1000:
			if chosen = append(chosen, i); len(chosen) == int(p.gpus) {
				return chosen, true
			}
		case chosen == nil || free[i] < free[chosen[0]]:
			chosen = []int{i}
		}
	}
	return chosen, p.share < 1000 && len(chosen) == 1
}

func (d devices) take(server string, p *tracePod) {
	chosen, _ := d.pick(server, p)
	for _, i := range chosen {
		d[server][i] -= p.share
	}
}

// policyRun is one run of a policy over the trace.
type policyRun struct {
	fleet    *placement.Fleet
	placer   *placement.Placer
	chain    *placement.Chain
	devices  devices
	rng      *rand.Rand
	pod      *tracePod // that is being placed
	prepared map[string]*placement.Prepared
	all      int64 // thousandths of devices that there are
}

func newPolicyRun(tb testing.TB, nodes []traceNode, seed uint64) *policyRun {
	tb.Helper()
	t := &policyRun{devices: devices{}, prepared: map[string]*placement.Prepared{}, rng: rand.New(rand.NewPCG(seed, 2))}
	t.fleet = placement.NewFleet(placement.NewNames())
	for _, n := range nodes {
		s := placement.NewServer(n.name, plimsoll.Resources{"cpu": n.cpu, "memory": n.memory})
		if n.gpus > 0 {
			s.Capacity["gpu"] = n.gpus * 1000
			s.Labels = map[string]string{"gpu": n.model}
			t.devices[n.name] = slices.Repeat([]int64{1000}, int(n.gpus))
			t.all += n.gpus * 1000
		}
		t.fleet.Add(&s)
	}
	var err error
	if t.chain, err = placement.NewChain(
		t.expression(), append(placement.Stages(), t.stage()), nil, placement.DefaultSettings(),
	); err != nil {
		tb.Fatal(err)
	}
	t.placer = placement.NewPlacer(t.fleet, rand.NewPCG(seed, 1))
	return t
}

// expression is the default chain with the filter for devices behind min-custom.
func (t *policyRun) expression() placement.Expression {
	e := placement.DefaultExpression()
	i := slices.IndexFunc(e.List, func(e placement.Expression) bool { return e.Name == "min-custom" })
	e.List = slices.Insert(e.List, i+1, placement.Named("gpu-devices"))
	return e
}

func (t *policyRun) stage() placement.Stage {
	return placement.Stage{
		Name: "gpu-devices", Reads: placement.ReadsFree | placement.ReadsInstances,
		Keep: func(v *placement.View) bool { _, ok := t.devices.pick(v.ID(), t.pod); return ok },
	}
}

// place finds a server for a pod, by the chain or by a policy over all servers that its filters
// keep.
func (t *policyRun) place(tb testing.TB, pod *tracePod, policy policy) bool {
	tb.Helper()
	p := t.prepare(tb, pod)
	t.pod = pod
	var slot int32
	if policy == nil {
		slot = t.placer.Place(p, 1).Slot
	} else {
		slot = t.best(p, policy)
	}
	if slot < 0 {
		return false
	}
	t.fleet.Bind(slot, t.fleet.Kind(&placement.Instance{Resources: p.Request.Resources}))
	t.devices.take(t.fleet.ID(slot), pod)
	return true
}

// possible reports whether some server would take the pod if nothing ran on it. The trace has pods
// that none would.
func (t *policyRun) possible(tb testing.TB, pod *tracePod) bool {
	tb.Helper()
	for slot := range int32(t.fleet.Len()) {
		if _, fits := t.placer.Suits(t.prepare(tb, pod), slot, 1); fits {
			return true
		}
	}
	return false
}

func (t *policyRun) prepare(tb testing.TB, pod *tracePod) *placement.Prepared {
	tb.Helper()
	r := placement.Request{Resources: plimsoll.Resources{"cpu": pod.cpu, "memory": pod.memory}}
	if pod.milli() > 0 {
		r.Resources["gpu"] = pod.milli()
	}
	if pod.models != nil {
		r.Constraints.Where = `node.labels.gpu in ["` + strings.Join(pod.models, `", "`) + `"]`
	}
	key := string(r.AppendKey(nil))
	if t.prepared[key] == nil {
		p, err := t.chain.Prepare(t.fleet, &r)
		if err != nil {
			tb.Fatal(err)
		}
		t.prepared[key] = p
	}
	return t.prepared[key]
}

// policy scores a server for a pod, as another scheduler would.
type policy func(t *policyRun, slot int32) float64

// best returns the server with the highest score, one at random of those with the same.
func (t *policyRun) best(p *placement.Prepared, score policy) int32 {
	best, high, ties := int32(-1), 0.0, 0
	for slot := range int32(t.fleet.Len()) {
		if !t.placer.Keeps(p, slot, 1) {
			continue
		}
		switch n := score(t, slot); {
		case best < 0 || n > high:
			best, high, ties = slot, n, 1
		case n == high:
			if ties++; t.rng.IntN(ties) == 0 {
				best = slot
			}
		}
	}
	return best
}

// free is the mean of the parts of cpu, memory and, if they are asked for, devices that would be
// free.
func free(t *policyRun, slot int32) float64 {
	asked := [...]int64{t.pod.cpu, t.pod.memory, t.pod.milli()}
	n := len(asked)
	if asked[2] == 0 {
		n--
	}
	sum := 0.0
	for k, name := range []string{"cpu", "memory", "gpu"}[:n] {
		i := t.fleet.Names.Index(name)
		sum += float64(t.fleet.Free(slot, i)-asked[k]) / float64(t.fleet.Capacity(slot)[i])
	}
	return sum / float64(n)
}

// policies are the compared policies; the first is the default chain, in batches of fifty. The
// others score every server that its filters keep, as kube-scheduler's NodeResourcesFit would with
// its strategies LeastAllocated and MostAllocated.
var policies = []struct {
	name  string
	score policy
}{
	{"plimsoll", nil},
	{"least-allocated", free},
	{"most-allocated", func(t *policyRun, slot int32) float64 { return -free(t, slot) }},
	{"random-fit", func(*policyRun, int32) float64 { return 0 }},
}

// quality is how much of the devices was allocated, in %.
type quality struct {
	first, end float64
	failed     int // pods
}

func (q quality) String() string {
	return fmt.Sprintf("%5.1f %% at the first failure, %5.1f %% at the end, %d pods failed", q.first, q.end, q.failed)
}

func measureQuality(tb testing.TB, nodes []traceNode, pods []tracePod, policy policy, seed uint64) quality {
	tb.Helper()
	t, q, given := newPolicyRun(tb, nodes, seed), quality{}, int64(0)
	for i := range pods {
		if t.place(tb, &pods[i], policy) {
			given += pods[i].milli()
			continue
		}
		if q.failed++; q.first == 0 && t.possible(tb, &pods[i]) {
			q.first = 100 * float64(given) / float64(t.all)
		}
	}
	q.end = 100 * float64(given) / float64(t.all)
	if q.first == 0 {
		q.first = q.end
	}
	return q
}

// The pods of the trace are placed in order and never deleted. There are no owners in it, so all
// are of one.
func BenchmarkQuality(b *testing.B) {
	for _, list := range []string{"default", "gpuspec33"} {
		nodes, pods := readTrace(b, list, 1)
		for _, policy := range policies {
			b.Run("openb/"+list+"/"+policy.name, func(b *testing.B) {
				var q quality
				for seed := uint64(1); b.Loop(); seed++ {
					q = measureQuality(b, nodes, pods, policy.score, seed)
				}
				b.ReportMetric(q.first, "%first-failure")
				b.ReportMetric(q.end, "%end")
				b.ReportMetric(float64(q.failed), "failed")
			})
		}
	}
}

// On a sample of the trace, the default chain allocates at least as many devices as each other
// policy. So it is at the first failure and at the end.
func TestQuality(t *testing.T) {
	for _, list := range []string{"default", "gpuspec33"} {
		nodes, pods := readTrace(t, list, 8)
		t.Logf("openb, every eighth node and pod, %s:", list)
		var ours, best quality
		for i, policy := range policies {
			q := measureQuality(t, nodes, pods, policy.score, 1)
			t.Logf("%-16s %s", policy.name, q)
			if i == 0 {
				ours = q
				continue
			}
			best.first, best.end = max(best.first, q.first), max(best.end, q.end)
		}
		if ours.first < best.first || ours.end < best.end {
			t.Errorf("%s: got %s; the best of the others are %.1f and %.1f", list, ours, best.first, best.end)
		}
	}
}
