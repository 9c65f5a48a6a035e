package history

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// Amount is a sum of units times nanoseconds, exact. The largest cell uses 2^60 bytes of memory,
// and a century has 2^62 ns: 64 bits are too few.
type Amount struct{ High, Low uint64 }

// AmountOf returns what an amount of a resource is for a time in nanoseconds. Neither is negative.
func AmountOf(units, nanos int64) Amount {
	hi, lo := bits.Mul64(uint64(units), uint64(nanos))
	return Amount{hi, lo}
}

// Plus returns the sum.
func (a Amount) Plus(b Amount) Amount {
	lo, carry := bits.Add64(a.Low, b.Low, 0)
	hi, _ := bits.Add64(a.High, b.High, carry)
	return Amount{hi, lo}
}

// Seconds returns the amount in units times seconds, as near as a float64 comes.
func (a Amount) Seconds() float64 { return (float64(a.High)*(1<<64) + float64(a.Low)) / 1e9 }

// Waits counts how long tasks waited.
type Waits struct {
	Count   uint64
	Total   Amount // one unit times nanoseconds
	Longest int64  // nanoseconds
	Buckets []Bucket
}

// Bucket counts waits of nearly one length: from the least of its index up to the least of the
// next. There are four buckets for each doubling, so a percentile is at most a quarter too long.
type Bucket struct {
	Index uint8
	Count uint64
}

// Add adds what another group, or another hour, has.
func (s *Sums) Add(o *Sums) {
	if s.Used == nil {
		s.Used = map[string]Amount{}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Used)) {
		s.Used[name] = s.Used[name].Plus(o.Used[name])
	}
	s.Waits.add(&o.Waits)
	s.Started, s.Ended, s.Failed = s.Started+o.Started, s.Ended+o.Ended, s.Failed+o.Failed
}

// Note counts a wait in nanoseconds.
func (w *Waits) Note(nanos int64) {
	w.add(&Waits{1, AmountOf(1, nanos), nanos, []Bucket{{bucketOf(nanos / 1e6), 1}}})
}

// add merges two sorted lists of buckets.
func (w *Waits) add(o *Waits) {
	w.Count, w.Total, w.Longest = w.Count+o.Count, w.Total.Plus(o.Total), max(w.Longest, o.Longest)
	for _, b := range o.Buckets {
		i, found := slices.BinarySearchFunc(w.Buckets, b.Index, func(b Bucket, index uint8) int {
			return cmp.Compare(b.Index, index)
		})
		if !found {
			w.Buckets = slices.Insert(w.Buckets, i, Bucket{Index: b.Index})
		}
		w.Buckets[i].Count += b.Count
	}
}

// bucketOf returns the bucket of a wait in milliseconds.
func bucketOf(millis int64) uint8 {
	if millis < 4 {
		return uint8(max(millis, 0))
	}
	octave := bits.Len64(uint64(millis)) - 1 // at least 2
	return uint8(min(4*octave-4+int(millis>>(octave-2))&3, math.MaxUint8))
}

// least returns the shortest wait of a bucket in milliseconds.
func least(bucket uint8) int64 {
	if bucket < 4 {
		return int64(bucket)
	}
	octave := int(bucket)/4 + 1
	return (4 + int64(bucket)%4) << (octave - 2)
}

// Percentile returns the wait that p of a hundred tasks did not exceed, as a bound from above.
func (w *Waits) Percentile(p float64) int64 {
	rank, seen := uint64(math.Ceil(p/100*float64(w.Count))), uint64(0)
	for _, b := range w.Buckets {
		if seen += b.Count; seen >= max(rank, 1) && b.Index < math.MaxUint8 {
			return min(least(b.Index+1)*1e6, w.Longest)
		}
	}
	return w.Longest
}

// EncodeLabels returns labels as one text that tells equal sets apart from others: quoted keys and
// values in the order of the keys; empty for none.
func EncodeLabels(labels map[string]string) string {
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text = strconv.AppendQuote(strconv.AppendQuote(text, key), labels[key])
	}
	return string(text)
}

// DecodeLabels is the inverse of EncodeLabels; ok is false for any other text.
func DecodeLabels(text string) (labels map[string]string, ok bool) {
	labels = map[string]string{}
	for text != "" {
		var pair [2]string
		for i := range pair {
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				return nil, false
			}
			if pair[i], err = strconv.Unquote(quoted); err != nil {
				return nil, false
			}
			text = text[len(quoted):]
		}
		labels[pair[0]] = pair[1]
	}
	return labels, true
}
