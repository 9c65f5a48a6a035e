package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPercentileIsAtMostAQuarterTooLong(t *testing.T) {
	for bucket := range uint8(200) {
		if got := bucketOf(least(bucket)); got != bucket {
			t.Fatalf("bucketOf(least(%d)) = %d", bucket, got)
		}
		if low, high := least(bucket), least(bucket+1); bucket >= 4 && (high-low)*4 > low {
			t.Errorf("bucket %d holds waits from %d to %d ms, want a quarter between them", bucket, low, high)
		}
	}
}

func TestLabelsAreRestored(t *testing.T) {
	for _, labels := range []map[string]string{{}, {"a": "b", "": "x\"y", "z": ""}, {"a\"b": "c"}} {
		if got, ok := DecodeLabels(EncodeLabels(labels)); !ok || !cmp.Equal(got, labels) {
			t.Errorf("DecodeLabels(EncodeLabels(%v)) = %v, %v", labels, got, ok)
		}
	}
	if _, ok := DecodeLabels(`"a"b`); ok {
		t.Error("DecodeLabels takes half a pair")
	}
}
