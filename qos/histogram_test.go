package qos

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

const second = int64(time.Second)

// watch enters the same value every second for a while, and returns the time after it.
func watch(p *Predictor, at int64, value int64, long time.Duration) int64 {
	for end := at + int64(long); at < end; at += second {
		p.Observe(at, value)
	}
	return at
}

// Nothing is predicted before enough was observed, nor from an observation that is too old.
func TestPredictorWarmsUp(t *testing.T) {
	p := NewPredictor(PredictorConfig{WarmUp: time.Minute, Stale: 10 * time.Second})
	if _, ok := p.Peak(0); ok {
		t.Error("it predicts without any observation")
	}
	at := watch(p, 1000*second, Core, 60*time.Second)
	if _, ok := p.Peak(at); ok {
		t.Error("60 samples a second apart span 59 seconds, and it predicts")
	}
	p.Observe(at, Core)
	if _, ok := p.Peak(at); !ok {
		t.Error("a minute was observed, and it does not predict")
	}
	if _, ok := p.Peak(at + 11*second); ok {
		t.Error("the last observation is 11 seconds old, and it predicts")
	}
	// A pause is not observed time; one that is longer than the half-life begins the warm-up anew.
	p.Observe(at+int64(time.Hour), Core)
	if _, ok := p.Peak(at + int64(time.Hour)); !ok {
		t.Error("a pause within the half-life made it forget")
	}
	p.Observe(at+int64(48*time.Hour), Core)
	if _, ok := p.Peak(at + int64(48*time.Hour)); ok {
		t.Error("after two days of pause it predicts from one sample")
	}
}

// A constant load is predicted as itself plus the margin, at most a bucket's width too high.
func TestPredictorConstant(t *testing.T) {
	for _, value := range []int64{0, 1, 1 << 20, 3 * Core / 2, 64 << 30, 1 << 50, math.MaxInt64} {
		p := NewPredictor(PredictorConfig{WarmUp: time.Second, Margin: -1})
		at := watch(p, 0, value, time.Minute)
		got, ok := p.Peak(at)
		most := max(value+value/perOctave+1, 1<<unitBits)
		if value > math.MaxInt64/2 {
			most = math.MaxInt64
		}
		if !ok || got < value || got > most {
			t.Errorf("constant %d: predicted %d, %v; at most %d is right", value, got, ok, most)
		}
	}
}

// A square wave that is high a tenth of the time is predicted by its peaks, also in its valleys.
func TestPredictorSquareWave(t *testing.T) {
	p := NewPredictor(PredictorConfig{HalfLife: time.Hour, Percentile: 950, Margin: -1, WarmUp: time.Minute})
	at := int64(0)
	for range 20 {
		at = watch(p, at, 8*Core, time.Minute)
		at = watch(p, at, Core, 9*time.Minute)
		if got, ok := p.Peak(at); !ok || got < 8*Core || got > 8*Core+8*Core/perOctave {
			t.Fatalf("in a valley %d cores are predicted, %v; the peaks are 8", got/Core, ok)
		}
	}
}

// The present use counts at once, even if it is the first of its size.
func TestPredictorPresentUse(t *testing.T) {
	p := NewPredictor(PredictorConfig{WarmUp: time.Second})
	at := watch(p, 0, Core, time.Hour)
	p.Observe(at, 20*Core)
	if got, _ := p.Peak(at); got != 20*Core {
		t.Errorf("predicted %d, and %d is used now", got, 20*Core)
	}
	p.Observe(at+second, Core)
	if got, _ := p.Peak(at + second); got > 2*Core {
		t.Errorf("a single peak in an hour is predicted for ever: %d", got)
	}
}

// An hour of load fades. With the median, an equally long calm time outweighs it. With the 90th
// percentile, a calm of a little more than three half-lives does: 1/8 of the old weight against
// 7/8, then less than a tenth.
func TestPredictorDecays(t *testing.T) {
	half := time.Hour
	p := NewPredictor(PredictorConfig{HalfLife: half, Percentile: 900, Margin: -1, WarmUp: time.Second})
	at := watch(p, 0, 10*Core, 100*half) // as heavy as it can become
	at = watch(p, at, Core, 3*half)
	if got, _ := p.Peak(at); got < 10*Core {
		t.Errorf("after three half-lives an eighth is left, and %d is predicted", got)
	}
	at = watch(p, at, Core, half)
	if got, _ := p.Peak(at); got > 2*Core {
		t.Errorf("after four half-lives a sixteenth is left, and %d is predicted", got)
	}
}

// The weights in the table are powers of two, to half a unit.
func TestPredictorWeights(t *testing.T) {
	for i, got := range doubling {
		if want := math.Round(fullWeight * math.Exp2(float64(i)/fadeSteps)); float64(got) != want {
			t.Errorf("doubling[%d] = %d, want %v", i, got, want)
		}
	}
}

// Each value lies in its bucket, buckets follow upon each other without gaps, and none is wider
// than a 32nd.
func TestPredictorBuckets(t *testing.T) {
	start := int64(0)
	for i := range maxBuckets {
		end := bucketEnd(i)
		if end <= start && i > 0 && end != math.MaxInt64 {
			t.Fatalf("bucket %d ends at %d, the one before at %d", i, end, start)
		}
		if got := bucketOf(end); got != i {
			t.Fatalf("the end of bucket %d, %d, is in %d", i, end, got)
		}
		if start < end && bucketOf(start+1) != i {
			t.Fatalf("the start of bucket %d, %d, is in %d", i, start+1, bucketOf(start+1))
		}
		if i > perOctave && end-start > start/perOctave+1 {
			t.Fatalf("bucket %d is wider than a 32nd: %d to %d", i, start, end)
		}
		start = end
	}
	if start != math.MaxInt64 {
		t.Errorf("the last bucket ends at %d", start)
	}
}

// A clock that is set back by an hour or forward by years loses no samples, and later samples
// count.
func TestPredictorClock(t *testing.T) {
	p := NewPredictor(PredictorConfig{WarmUp: time.Minute, Margin: -1, HalfLife: time.Hour})
	at := watch(p, 1000*second, 4*Core, time.Hour)
	at -= int64(time.Hour)
	p.Observe(at, 4*Core)
	if got, ok := p.Peak(at); !ok || got < 4*Core {
		t.Errorf("after the clock was set back: %d, %v", got, ok)
	}
	at += int64(20 * 365 * 24 * time.Hour)
	at = watch(p, at, Core, 2*time.Minute)
	if got, ok := p.Peak(at); !ok || got > 2*Core {
		t.Errorf("after the clock was set forward: %d, %v", got, ok)
	}
	at -= int64(20 * 365 * 24 * time.Hour)
	at = watch(p, at, 2*Core, 2*time.Hour)
	if got, ok := p.Peak(at); !ok || got < 2*Core {
		t.Errorf("after it was set back again: %d, %v", got, ok)
	}
}

// One that was written down and read goes on exactly as if it had not been, and its size does not
// grow with the samples.
func TestPredictorCheckpoint(t *testing.T) {
	testrun.Check(t, func(t *rapid.T) {
		cfg := PredictorConfig{
			HalfLife:   time.Duration(rapid.Int64Range(1, 100).Draw(t, "half-life")) * time.Second,
			Percentile: rapid.Int64Range(1, 1000).Draw(t, "percentile"), WarmUp: 10 * time.Second,
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		p, at := NewPredictor(cfg), int64(1_700_000_000)*second
		var q *Predictor
		for i := range 2000 {
			at += r.Int64N(2*second) - second/100
			if r.IntN(500) == 0 {
				at += r.Int64N(100 * int64(cfg.HalfLife))
			}
			value := r.Int64N(1 << r.IntN(45))
			p.Observe(at, value)
			if q != nil {
				q.Observe(at, value)
				a, aOK := p.Peak(at)
				b, bOK := q.Peak(at)
				if a != b || aOK != bOK {
					t.Fatalf("sample %d: %d, %v and after restoring %d, %v", i, a, aOK, b, bOK)
				}
			}
			if q == nil || r.IntN(100) == 0 {
				data, err := p.Checkpoint()
				if err != nil {
					t.Fatal(err)
				}
				if q, err = RestorePredictor(cfg, data); err != nil {
					t.Fatal(err)
				}
				again, err := q.Checkpoint()
				if err != nil || !bytes.Equal(data, again) {
					t.Fatalf("written down again it differs (%v):\n%s\n%s", err, data, again)
				}
				if len(data) > 30_000 || len(p.buckets) > maxBuckets {
					t.Fatalf("it has grown to %d bytes and %d buckets", len(data), len(p.buckets))
				}
			}
		}
	})
}

// With another half-life, earlier samples keep their weight.
func TestPredictorOtherHalfLife(t *testing.T) {
	p := NewPredictor(PredictorConfig{HalfLife: time.Hour, WarmUp: time.Minute, Margin: -1})
	at := watch(p, 0, 6*Core, 10*time.Hour)
	data, err := p.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	q, err := RestorePredictor(PredictorConfig{HalfLife: 24 * time.Hour, WarmUp: time.Minute, Margin: -1}, data)
	if err != nil {
		t.Fatal(err)
	}
	at = watch(q, at, Core, time.Minute)
	if got, ok := q.Peak(at); !ok || got < 6*Core {
		t.Errorf("a minute later %d is predicted, %v; it was 6 cores for ten hours", got, ok)
	}
}

// A checkpoint that Checkpoint cannot have written is refused, and never causes a panic.
func TestPredictorBadCheckpoint(t *testing.T) {
	for _, data := range []string{
		``, `{}`, `[]`, `{"Version":2,"HalfLife":3600000000000}`, `{"Version":1}`, `{"Version":1,"HalfLife":-1}`,
		`{"Version":1,"HalfLife":3600000000000,"Buckets":[1]}`,
		`{"Version":1,"HalfLife":3600000000000,"Buckets":[5,1,5,1]}`,
		`{"Version":1,"HalfLife":3600000000000,"Buckets":[99999,1]}`,
		`{"Version":1,"HalfLife":3600000000000,"Buckets":[1,9223372036854775808]}`,
		`{"Version":1,"HalfLife":3600000000000,"Last":9223372036854775807,"Origin":-9223372036854775808}`,
		`{"Version":1,"HalfLife":3600000000000,"Seen":-5}`,
		`{"Version":1,"HalfLife":1000000000,"Last":1000000000000000}`,
	} {
		if p, err := RestorePredictor(PredictorConfig{}, []byte(data)); err == nil {
			t.Errorf("%s is taken as %+v", data, p)
		}
	}
}

// However many samples there are, and however long the half-life, weights do not overflow.
func TestPredictorHeavy(t *testing.T) {
	p := NewPredictor(PredictorConfig{HalfLife: 30 * 24 * time.Hour, WarmUp: time.Second, Margin: -1})
	at := watch(p, 0, 2*Core, time.Minute)
	p.buckets[bucketOf(2*Core)] = maxTotal - 1
	p.total = maxTotal - 1
	for range 10 {
		at = watch(p, at, 2*Core, time.Minute)
		for i := range p.buckets {
			p.buckets[i] *= 2
		}
		p.total *= 2
	}
	if got, ok := p.Peak(at); !ok || got < 2*Core || got > 3*Core {
		t.Errorf("predicted %d, %v", got, ok)
	}
}
