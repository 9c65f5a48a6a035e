package cgroup

import (
	"strings"
	"testing"
)

// Well-formed text is read. Text that is cut short, empty, negative or too large is unknown.
func TestParseNumber(t *testing.T) {
	for text, want := range map[string]int64{"0\n": 0, "12345\n": 12345, "9223372036854775807\n": 1<<63 - 1} {
		if n, ok := ParseNumber([]byte(text)); !ok || n != want {
			t.Errorf("%q is %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{
		"", "\n", "12", "-1\n", "9223372036854775808\n", "99999999999999999999\n", "max\n", "1 2\n", "1\n2\n", "NaN\n",
		" 1\n",
	} {
		if n, ok := ParseNumber([]byte(text)); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
	if n, ok := signed([]byte("-1\n")); !ok || n != -1 {
		t.Errorf("-1 is %d, %v", n, ok)
	}
}

// A key is found only at the start of a line, and only as a whole.
func TestParseKey(t *testing.T) {
	const stat = "total_file 1\nfile 2\nfiles 3\nusage_usec 18446744073709551615\ncut 4"
	for key, want := range map[string]int64{"total_file": 1, "file": 2, "files": 3} {
		if n, ok := ParseKey([]byte(stat), key); !ok || n != want {
			t.Errorf("%s is %d, %v; want %d", key, n, ok, want)
		}
	}
	for _, key := range []string{"fil", "usage_usec", "cut", "none", "ile"} {
		if n, ok := ParseKey([]byte(stat), key); ok {
			t.Errorf("%s is %d", key, n)
		}
	}
	if n, ok := ParseKey([]byte("MemFree:  7 kB\nMemTotal:       123 kB\n"), "MemTotal:"); !ok || n != 123 {
		t.Errorf("MemTotal is %d, %v", n, ok)
	}
}

// Both lines are read. The machine's cpu has only one on older kernels.
func TestParsePressure(t *testing.T) {
	const (
		some = "some avg10=1.20 avg60=0.25 avg300=7.72 total=5859141845\n"
		full = "full avg10=100.00 avg60=0.00 avg300=0.00 total=17\n"
	)
	for text, want := range map[string]Pressure{
		some:        {Some: Stall{120, 5859141845}},
		some + full: {Stall{120, 5859141845}, Stall{10000, 17}},
	} {
		if p, ok := ParsePressure([]byte(text)); !ok || p != want {
			t.Errorf("%q is %+v, %v", text, p, ok)
		}
	}
	for _, text := range []string{
		"", "\n", some[:20], some[:len(some)-1], some + full[:20], full, strings.Replace(some, "1.20", "-1.20", 1),
		strings.Replace(some, "1.20", "101.00", 1),
		strings.Replace(some, "1.20", "nan", 1), strings.Replace(some, "total", "sum", 1),
		strings.Replace(some, "5859141845", "99999999999999999999", 1),
	} {
		if p, ok := ParsePressure([]byte(text)); ok {
			t.Errorf("%q is %+v", text, p)
		}
	}
}

// cpu.max of v2.
func TestParseMax(t *testing.T) {
	for text, want := range map[string]Quota{
		"max 100000\n": {-1, 100_000}, "50000 100000\n": {50_000, 100_000}, "1000 1000": {1000, 1000},
	} {
		if q, ok := parseMax([]byte(text)); !ok || q != want {
			t.Errorf("%q is %+v, %v", text, q, ok)
		}
	}
	for _, text := range []string{"", "max", "max \n", "50000\n", "-1 100000\n", "5 x\n", "mix 5\n", "1 2 3\n"} {
		if q, ok := parseMax([]byte(text)); ok {
			t.Errorf("%q is %+v", text, q)
		}
	}
}

// No content of a kernel file yields a negative value or a panic.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"123\n", "-1\n", "max 100000\n", "0.02 0.74 0.67 1/234 99\n",
		"some avg10=1.20 avg60=0.25 avg300=7.72 total=5859\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"nr_periods 4\nnr_throttled 3\nthrottled_time 99999999999\n", "usage_usec 12\nthrottled_usec 5\n",
		"total_inactive_file 4096\ntotal_active_file 8192\n", "9223372036854775807 9223372036854775808\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var n [6]int64
		n[0], _ = ParseNumber(b)
		n[1], _ = ParseKey(b, "usage_usec")
		n[2], _, _ = ParseFixed(b, 3)
		n[3], n[4] = func() (int64, int64) { r := readingOf(b); return r.CPU, r.Throttled }()
		p, ok := ParsePressure(b)
		if !ok && p != (Pressure{}) {
			t.Errorf("%q is no pressure, and is %+v", b, p)
		}
		n[5] = min(p.Some.Avg10, p.Some.TotalMicros, p.Full.Avg10, p.Full.TotalMicros)
		for i, n := range n {
			if n < 0 {
				t.Errorf("parser %d makes %d of %q", i, n, b)
			}
		}
		if q, ok := parseMax(b); ok && (q.Micros < -1 || q.PeriodMicros < 0) {
			t.Errorf("%q is %+v", b, q)
		}
	})
}

// readingOf returns the reading of a cpu.stat of v2.
func readingOf(b []byte) (r Reading) {
	r.CPU, r.CPUKnown = micros(ParseKey(b, "usage_usec"))
	r.Throttled, r.ThrottledKnown = micros(ParseKey(b, "throttled_usec"))
	return r
}

// A malformed or missing file makes its value unknown and affects no other. Page cache does not
// count as memory in use, and is read again when memory has moved or a refresh is due.
func TestReaderOnAFakeTree(t *testing.T) {
	h, err := Detect(fakeV2(t, "cpu memory"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Subtree("plimsoll/n1")
	if err != nil {
		t.Fatal(err)
	}
	g := create(t, s, Limits{})
	files := func(current, memoryStat, cpuStat, pressure string) {
		fakeGroup(
			t, g.dirs[0],
			map[string]string{
				"memory.current": current, "memory.stat": memoryStat, "cpu.stat": cpuStat, "cpu.pressure": pressure,
				"memory.pressure": pressure,
			},
		)
	}
	const (
		cache = "anon 1\ninactive_file 3000000\nactive_file 1000000\n"
		cpu   = "usage_usec 1500\nthrottled_usec 7\n"
		none  = "some avg10=0.50 avg60=0.00 avg300=0.00 total=9\n"
	)
	files("16000000\n", cache, cpu, none)
	r, err := g.Reader(ReaderOptions{Pressure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, r)
	buf, stall := make([]byte, 4096), Pressure{Some: Stall{50, 9}}
	full := Reading{1_500_000, 7000, 12_000_000, stall, stall, true, true, true, true, true}
	with := func(change func(*Reading)) Reading { r := full; change(&r); return r }
	for _, step := range []struct {
		name                           string
		current, memory, cpu, pressure string
		refresh                        bool
		want                           Reading
	}{
		{"everything", "16000000\n", cache, cpu, none, false, full},
		{
			"more cache, but memory has not moved", "16100000\n", strings.Replace(cache, "3000000", "4000000", 1), cpu,
			none, false, with(func(r *Reading) { r.Memory = 12_100_000 }),
		},
		{
			"a refresh", "16100000\n", strings.Replace(cache, "3000000", "4000000", 1), cpu, none, true,
			with(func(r *Reading) { r.Memory = 11_100_000 }),
		},
		{
			"memory has moved", "26000000\n", strings.Replace(cache, "3000000", "9000000", 1), cpu, none, false,
			with(func(r *Reading) { r.Memory = 16_000_000 }),
		},
		{
			"cut short", "2600000", cache, cpu, none, false,
			with(func(r *Reading) { r.Memory, r.MemoryKnown = 0, false }),
		},
		{
			"no page cache", "50000000\n", "anon 1\n", cpu, none, false,
			with(func(r *Reading) { r.Memory, r.MemoryKnown = 0, false }),
		},
		{"more cache than memory", "2000000\n", cache, cpu, none, false, with(func(r *Reading) { r.Memory = 0 })},
		{
			"no cpu", "16000000\n", cache, "", none, true,
			with(func(r *Reading) { r.CPU, r.CPUKnown, r.Throttled, r.ThrottledKnown = 0, false, 0, false }),
		},
		{
			"cpu alone", "16000000\n", cache, "usage_usec 1500\nthrottled_usec -4\n", none, true,
			with(func(r *Reading) { r.Throttled, r.ThrottledKnown = 0, false }),
		},
		{
			"garbled pressure", "16000000\n", cache, cpu, "some", true,
			Reading{1_500_000, 7000, 12_000_000, Pressure{}, Pressure{}, true, true, true, false, false},
		},
	} {
		files(step.current, step.memory, step.cpu, step.pressure)
		var got Reading
		if err := r.Read(buf, &got, step.refresh); err != nil || got != step.want {
			t.Errorf("%s: %+v, %v; want %+v", step.name, got, err, step.want)
		}
	}
}
