package gateway

import (
	"bytes"
	"sync"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func TestARecordIsRenderedOnceAVersion(t *testing.T) {
	f := newFake()
	f.put(putTask(plimsoll.Task{Job: "a", Group: "g", Attempt: 1}), putTask(plimsoll.Task{Job: "b", Group: "g"}))
	g := newGateway(t, Config{MaxSharedBytes: noSharing}, f)
	read := func() []byte {
		_, _, body := post(g, plimsollv1connect.JobServiceListTasksProcedure, "application/json", []byte("{}"))
		return body
	}
	for range 3 {
		read()
	}
	if s := g.rendered.stats(); s.misses != 2 || s.hits != 4 {
		t.Errorf("after three reads of two records: %+v", s)
	}
	f.put(putTask(plimsoll.Task{Job: "a", Group: "g", Attempt: 2}))
	if body := read(); !bytes.Contains(body, []byte(`"attempt":2`)) {
		t.Errorf("after a change: %s", body)
	}
	if s := g.rendered.stats(); s.misses != 3 || s.hits != 5 {
		t.Errorf("after a change of one record: %+v", s)
	}
}

func TestTheCacheDropsWhatWasNotReadForTheLongestTime(t *testing.T) {
	data := make([][]byte, 20)
	for i := range data {
		data[i] = make([]byte, 100)
	}
	c := jsonCache{most: 10 * (100 + 44 + renderedOverhead)}
	for i := range 10 {
		c.keep(wire.KindTask, data[i], make([]byte, 44))
	}
	if _, has := c.find(wire.KindTask, data[0]); !has {
		t.Fatal("the first entry is gone although there is room")
	}
	c.keep(wire.KindTask, data[10], make([]byte, 44))
	for i, want := range map[int]bool{0: true, 1: false, 2: true, 10: true} {
		if _, has := c.find(wire.KindTask, data[i]); has != want {
			t.Errorf("entry %d is there: %v, want %v", i, has, want)
		}
	}
	if s := c.stats(); s.size != c.most || s.evicted != 1 {
		t.Errorf("got %+v, want %d bytes", s, c.most)
	}
	if _, has := c.find(wire.KindNode, data[0]); has {
		t.Error("a record of another kind has the same text")
	}
}

func TestTheCacheIsBoundedInBytes(t *testing.T) {
	c := jsonCache{most: 64 << 10}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 500 {
				data := make([]byte, i%37)
				c.keep(wire.KindJobStatus, data, make([]byte, 3*i))
				c.find(wire.KindJobStatus, data)
				if s := c.stats(); s.size > c.most {
					t.Errorf("%d bytes, and the bound is %d", s.size, c.most)
				}
			}
		})
	}
	group.Wait()
	large := make([]byte, c.most/8)
	c.keep(wire.KindJobSpec, large, []byte("{}"))
	if _, has := c.find(wire.KindJobSpec, large); has {
		t.Error("one record took an eighth of the cache")
	}
}
