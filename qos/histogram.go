package qos

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// MaxHalfLife is the longest half-life of a Predictor; a longer one is cut to it.
const MaxHalfLife = 30 * 24 * time.Hour

// PredictorConfig sets the memory and the margin of a Predictor. The zero value is usable.
type PredictorConfig struct {
	// HalfLife is the age at which a sample counts half. 0: 24 h, so that yesterday's peak still
	// counts today. It is kept between a second and 30 days.
	HalfLife time.Duration
	// Percentile of the remembered use, in thousandths: 990 leaves one in a hundred above. 0: 990.
	Percentile int64
	// Margin is added to the percentile, in percent of it. 0: 15; negative: no margin.
	Margin int64
	// WarmUp is the time that must have been observed before there is a prediction. 0: 10 min.
	WarmUp time.Duration
	// Stale is the greatest age of the last observation. A longer pause does not count as observed.
	// 0: 1 min.
	Stale time.Duration
}

func (c PredictorConfig) withDefaults() PredictorConfig {
	if c.HalfLife <= 0 {
		c.HalfLife = 24 * time.Hour
	}
	c.HalfLife = min(max(c.HalfLife, time.Second), MaxHalfLife)
	if c.Percentile <= 0 || c.Percentile > 1000 {
		c.Percentile = 990
	}
	if c.Margin == 0 {
		c.Margin = 15
	}
	c.Margin = min(max(c.Margin, 0), 1000)
	if c.WarmUp <= 0 {
		c.WarmUp = 10 * time.Minute
	}
	if c.Stale <= 0 {
		c.Stale = time.Minute
	}
	return c
}

// Predictor predicts the peak of one number, such as the nanocores or the bytes that tasks use. It
// is a histogram whose samples fade: a new sample weighs twice as much as one that is a half-life
// old. Its size is bounded by the largest value, whatever the number of samples: about 450 buckets
// of 8 bytes for 256 cores, at most 1,300. It reads no clock: times are Unix nanoseconds. When the
// time goes back, the Predictor goes on from the new time.
type Predictor struct {
	cfg     PredictorConfig
	buckets []uint64 // weights
	total   uint64   // Invariant: the sum of buckets, below 1<<62
	origin  int64    // a sample of this time weighs one
	last    int64    // time of the last sample
	value   int64    // its value
	seen    int64    // nanoseconds that were observed. Invariant: at most WarmUp
	any     bool     // a sample was observed
}

// NewPredictor returns a Predictor without samples.
func NewPredictor(cfg PredictorConfig) *Predictor { return &Predictor{cfg: cfg.withDefaults()} }

// fullWeight is the weight of a sample at the origin, in fixed point. fadeSteps is the number of
// parts of a half-life.
const (
	fullWeight = 1 << 16
	fadeSteps  = 16
	maxDoubled = 20              // half-lives after which the origin moves
	maxTotal   = uint64(1) << 60 // total weight at which the origin moves too
)

// doubling[i] is 2^(i/fadeSteps), in units of 1/fullWeight.
var doubling = [fadeSteps]uint64{
	65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752, 92682, 96785, 101070, 105545, 110218, 115098, 120194,
	125515,
}

// Observe adds the use at an instant. Negative values count as 0.
func (p *Predictor) Observe(at, value int64) {
	value = max(value, 0)
	switch pause := at - p.last; {
	case !p.any:
		p.origin, p.any = at, true
	case pause < 0: // the clock was set back, so the recorded samples move with it
		p.origin += pause
	// new samples will soon outweigh the old, so they must warm up
	case pause > int64(max(p.cfg.HalfLife, p.cfg.Stale)):
		p.seen = 0
	case pause <= int64(p.cfg.Stale):
		p.seen = min(p.seen+pause, int64(p.cfg.WarmUp))
	}
	p.last, p.value = at, value
	weight := p.weigh(at)
	i := bucketOf(value)
	for len(p.buckets) <= i {
		p.buckets = append(p.buckets, 0)
	}
	p.buckets[i] += weight
	p.total += weight
}

// weigh returns the weight of a new sample. It first moves the origin if the weight would become
// too large.
func (p *Predictor) weigh(at int64) uint64 {
	half := int64(p.cfg.HalfLife)
	doubled := (at - p.origin) / half
	if doubled >= maxDoubled {
		p.fade(doubled)
	} else if p.total >= maxTotal {
		p.fade(1)
	}
	since := at - p.origin
	if since < 0 { // only after very many samples in one half-life
		return fullWeight >> min((-since+half-1)/half, 16)
	}
	part := mulDiv(since%half, fadeSteps, half)
	return doubling[part] << (since / half)
}

// fade moves the origin by a number of half-lives, and halves all weights so many times.
func (p *Predictor) fade(halves int64) {
	p.origin += halves * int64(p.cfg.HalfLife)
	p.total = 0
	for i := range p.buckets {
		p.buckets[i] >>= min(halves, 63)
		p.total += p.buckets[i]
	}
	for len(p.buckets) > 0 && p.buckets[len(p.buckets)-1] == 0 {
		p.buckets = p.buckets[:len(p.buckets)-1]
	}
}

// Peak returns the expected peak at an instant: the percentile with its margin or, if that is more,
// the present use. ok is false until enough was observed, and when the last observation is too old.
func (p *Predictor) Peak(at int64) (value int64, ok bool) {
	age := at - p.last
	if !p.any || p.seen < int64(p.cfg.WarmUp) || age > int64(p.cfg.Stale) {
		return 0, false
	}
	high := p.percentile(p.cfg.Percentile)
	return max(mulDiv(high, 100+p.cfg.Margin, 100), p.value), true
}

// percentile returns a value that so many thousandths of the weight do not exceed: the upper end of
// a bucket, at most a 32nd too much.
func (p *Predictor) percentile(permille int64) int64 {
	if p.total == 0 {
		return p.value
	}
	need := uint64(max(mulDiv(int64(p.total), permille, 1000), 1))
	sum := uint64(0)
	for i, weight := range p.buckets {
		if sum += weight; sum >= need {
			return bucketEnd(i)
		}
	}
	return p.value
}

// Buckets are linear up to perOctave units and then exponential: perOctave to each doubling, so
// none is wider than a 32nd of its values. A unit is about a thousandth of a core, or a MiB.
const (
	unitBits   = 20
	octaveBits = 5
	perOctave  = 1 << octaveBits
	maxBuckets = (63 - unitBits - octaveBits + 1) * perOctave
)

// bucketOf returns the bucket of a value. A bucket holds the values above the end of the one
// before, up to its own end.
func bucketOf(value int64) int {
	if value <= 0 {
		return 0
	}
	units := uint64(value-1) >> unitBits
	octave := max(bits.Len64(units)-octaveBits-1, 0)
	return octave*perOctave + int(units>>octave)
}

// bucketEnd returns the largest value of a bucket.
func bucketEnd(i int) int64 {
	octave := max(i/perOctave-1, 0)
	end := uint64(i-octave*perOctave+1) << (octave + unitBits)
	if octave+unitBits >= 63 || end >= 1<<63 {
		return 1<<63 - 1
	}
	return int64(end)
}

// predictorFile is the encoded form of a predictor. Buckets holds index and weight in turn, of the
// buckets that are not empty.
type predictorFile struct {
	Version  int
	HalfLife time.Duration
	Origin   int64
	Last     int64
	Value    int64
	Seen     int64
	Any      bool
	Buckets  []uint64
}

const predictorVersion = 1

// Checkpoint returns the predictor as JSON; equal predictors give equal bytes.
func (p *Predictor) Checkpoint() ([]byte, error) {
	f := predictorFile{
		Version: predictorVersion, HalfLife: p.cfg.HalfLife, Origin: p.origin, Last: p.last, Value: p.value,
		Seen: p.seen, Any: p.any,
	}
	for i, weight := range p.buckets {
		if weight > 0 {
			f.Buckets = append(f.Buckets, uint64(i), weight)
		}
	}
	data, err := json.Marshal(&f)
	if err != nil {
		return nil, fmt.Errorf("write down the prediction: %w", err)
	}
	return data, nil
}

// RestorePredictor reads the output of Checkpoint. With the same configuration it answers as the
// original did. With another half-life the recorded samples keep their weight, and fade at the new
// pace from then on.
func RestorePredictor(cfg PredictorConfig, data []byte) (*Predictor, error) {
	var f predictorFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read the prediction: %w", err)
	}
	bad := func(what string) error {
		return plimsoll.Errorf(
			plimsoll.CodeInternal,
			"the prediction that was written down cannot be used: %s; remove it, and it is learnt anew", what,
		)
	}
	p := NewPredictor(cfg)
	since := f.Last - f.Origin
	switch {
	case f.Version != predictorVersion:
		return nil, bad(fmt.Sprintf("it is of version %d, and this program reads %d", f.Version, predictorVersion))
	case f.HalfLife < time.Second || f.HalfLife > MaxHalfLife || f.Value < 0 || f.Seen < 0 || len(f.Buckets)%2 != 0 ||
		len(f.Buckets) > 2*maxBuckets:
		return nil, bad("a number in it is impossible")
	case since/int64(f.HalfLife) < -16 || since/int64(f.HalfLife) > maxDoubled || (f.Last < f.Origin) != (since < 0):
		return nil, bad("its times contradict each other")
	}
	for i := 0; i < len(f.Buckets); i += 2 {
		at, weight := f.Buckets[i], f.Buckets[i+1]
		if at >= maxBuckets || at < uint64(len(p.buckets)) || weight >= 1<<62 || p.total+weight >= 1<<62 {
			return nil, bad("its buckets are not in order, or too heavy")
		}
		for uint64(len(p.buckets)) <= at {
			p.buckets = append(p.buckets, 0)
		}
		p.buckets[at] = weight
		p.total += weight
	}
	if since < 0 {
		since = -mulDiv(-since, int64(p.cfg.HalfLife), int64(f.HalfLife))
	} else {
		since = mulDiv(since, int64(p.cfg.HalfLife), int64(f.HalfLife))
	}
	p.origin, p.last, p.value, p.any = f.Last-since, f.Last, f.Value, f.Any
	p.seen = min(f.Seen, int64(p.cfg.WarmUp))
	return p, nil
}
