package wire

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

func BenchmarkAppendTask(b *testing.B) {
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = AppendTask(dst[:0], &sampleTask)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkDecodeTask(b *testing.B) {
	data := AppendTask(nil, &sampleTask)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeTask(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJobStatus(b *testing.B) {
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = AppendJobStatus(dst[:0], &sampleJobStatus)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkDecodeJobStatus(b *testing.B) {
	data := AppendJobStatus(nil, &sampleJobStatus)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeJobStatus(data); err != nil {
			b.Fatal(err)
		}
	}
}

// A batch of 102 mutations and 2000 bytes of events.
func BenchmarkAppendBatch(b *testing.B) {
	batch := sampleBatch(100)
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = AppendBatch(dst[:0], &batch)
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkDecodeBatch(b *testing.B) {
	batch := sampleBatch(100)
	data := AppendBatch(nil, &batch)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBatch(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTaskKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		TaskKey("wordcount", "map", 17)
	}
}

// The hot records are written without any allocation beyond the growth of dst.
func TestAppendAllocatesNothing(t *testing.T) {
	batch, dst := sampleBatch(100), make([]byte, 0, 64<<10)
	for name, write := range map[string]func(){
		"task":   func() { AppendTask(dst, &sampleTask) },
		"status": func() { AppendJobStatus(dst, &sampleJobStatus) },
		"batch":  func() { AppendBatch(dst, &batch) },
	} {
		if n := testing.AllocsPerRun(100, write); n != 0 {
			t.Errorf("appending a %s allocates %v times", name, n)
		}
	}
	data := AppendTask(nil, &plimsoll.Task{Job: "wordcount", Group: "map", Index: 17})
	if n := testing.AllocsPerRun(100, func() {
		if _, err := DecodeTask(data); err != nil {
			t.Error(err)
		}
	}); n != 1 {
		t.Errorf("decoding a task without a node allocates %v times, not once", n)
	}
}
