package etcd

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// prefixes numbers the stores on one cluster.
var prefixes atomic.Int64

// config returns the configuration of an empty store on a cluster.
func config(c *etcdtest.Cluster) Config {
	return Config{Endpoints: c.Endpoints(), Prefix: fmt.Sprintf("/test%d/", prefixes.Add(1))}
}

func openStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test that looks at the error closes it before
	return s
}

func TestConformance(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	admin := cluster.Client(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		cfg := config(cluster)
		return storetest.Harness{
			Open:    func() (store.Store, error) { return Open(context.Background(), cfg) },
			Openers: storetest.ManyOpeners, KnowsChanges: true,
			Depose: func(s store.Store) error {
				_, err := admin.Revoke(context.Background(), s.(*Store).term().place.lease.id)
				return err
			},
		}
	})
}
