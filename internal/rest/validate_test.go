package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/config"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func post(t *testing.T, h http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

// A queue file is checked by itself, as YuniKorn does: the verdict is an answer, also if it is no.
func TestAQueueFileIsValidated(t *testing.T) {
	const path = "/ws/v1/validate-conf"
	h := rest.New(rest.Config{}, small(t))
	good := "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]"
	if w := post(t, h, path, good); w.Code != http.StatusOK ||
		w.Body.String() != `{"allowed":true,"reason":""}`+"\n" ||
		w.Header().Get("Content-Type") != "application/json; charset=UTF-8" {
		t.Errorf("a good file: status %d, %v, %s", w.Code, w.Header(), w.Body)
	}
	for _, bad := range []string{"", "{", strings.Replace(good, "name: a", "name: a, nonsense: 1", 1), "\x00\xff"} {
		w := post(t, h, path, bad)
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), `{"allowed":false,"reason":"`) ||
			strings.Contains(w.Body.String(), `"reason":""`) {
			t.Errorf("%q: status %d, %s", bad, w.Code, w.Body)
		}
	}
	long := strings.Repeat("#", config.MaxFileBytes+1)
	if why := errorOf(t, post(t, h, path, long), http.StatusBadRequest); !strings.Contains(why, "4194304 bytes") {
		t.Errorf("a long file: %s", why)
	}
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		w := get(h, method, path)
		errorOf(t, w, http.StatusMethodNotAllowed)
		if w.Header().Get("Allow") != http.MethodPost {
			t.Errorf("%s: Allow is %q", method, w.Header().Get("Allow"))
		}
	}
	c := small(t)
	c.most = 100
	if w := post(t, rest.New(rest.Config{}, c), path, good); w.Code != http.StatusTooManyRequests {
		t.Errorf("without room: status %d: %s", w.Code, w.Body)
	}
}

// withSettings is a cell whose queues have properties and a template.
func withSettings(t *testing.T, sort *plimsoll.NodeSort) *cell {
	t.Helper()
	each := plimsoll.Resources{plimsoll.CPU: 2000, plimsoll.Memory: 1 << 30}
	tree := plimsoll.QueueConfig{
		Name: "root", Parent: true, Partition: &plimsoll.PartitionConfig{NodeSort: sort},
		Properties: map[string]string{
			plimsoll.PropertySort: "fair", plimsoll.PropertySortPriority: "disabled",
			plimsoll.PropertyPriorityOffset: "5",
		},
		Queues: []plimsoll.QueueConfig{
			{
				Name: "users", Parent: true, MaxJobs: 9,
				Template: &plimsoll.QueueTemplate{
					Max: each, Guaranteed: plimsoll.Resources{plimsoll.CPU: 500}, MaxJobs: 2,
					Properties: map[string]string{plimsoll.PropertySort: "fifo"},
				},
				Queues: []plimsoll.QueueConfig{{
					Name: "ann", Dynamic: true, MaxJobs: 2, Max: each,
					Properties: map[string]string{plimsoll.PropertySort: "fifo"},
				}},
			},
			{Name: "fenced", Properties: map[string]string{
				plimsoll.PropertyPriorityPolicy: "fence", plimsoll.PropertyPriorityOffset: "-3",
				plimsoll.PropertyPreemptionPolicy: "fence", plimsoll.PropertyPreemptionDelay: "1m",
				plimsoll.PropertyQuotaPreemption: "2m",
			}},
		},
	}
	return newCell(
		t, wire.Mutation{Kind: wire.KindQueueConfig, Value: wire.AppendQueueConfig(nil, &tree)},
		putQueue(plimsoll.QueueStatus{Path: "root"}), putQueue(plimsoll.QueueStatus{Path: "root.users"}),
		putQueue(plimsoll.QueueStatus{Path: "root.users.ann", Leaf: true}),
		putQueue(plimsoll.QueueStatus{Path: "root.fenced", Leaf: true}),
	)
}

// The settings of queues have YuniKorn's names. Properties are inherited as there.
func TestQueuesShowTheirSettings(t *testing.T) {
	all := answerOf(t, rest.New(rest.Config{}, withSettings(t, nil)), ofPartition+"queues")
	for place, want := range map[string]any{
		"isManaged":                          true,
		"sortingPolicy":                      "fair",
		"prioritySorting":                    false,
		"priorityOffset":                     5.0,
		"properties/application.sort.policy": "fair",

		"children/0/queuename":                                       "root.fenced",
		"children/0/isLeaf":                                          true,
		"children/0/sortingPolicy":                                   "fair",
		"children/0/prioritySorting":                                 false,
		"children/0/isPriorityFence":                                 true,
		"children/0/priorityOffset":                                  -3.0,
		"children/0/isPreemptionFence":                               true,
		"children/0/preemptionDelay":                                 "1m0s",
		"children/0/quotaPreemptionDelay":                            "2m0s",
		"children/0/properties/application.sort.policy":              "fair",
		"children/0/properties/priority.policy":                      "fence",
		"children/1/maxRunningApps":                                  9.0,
		"children/1/isManaged":                                       true,
		"children/1/preemptionDelay":                                 "30s",
		"children/1/template/maxApplications":                        2.0,
		"children/1/template/maxResource/vcore":                      2000.0,
		"children/1/template/guaranteedResource/vcore":               500.0,
		"children/1/template/properties/application.sort.policy":     "fifo",
		"children/1/children/0/isManaged":                            false,
		"children/1/children/0/isLeaf":                               true,
		"children/1/children/0/sortingPolicy":                        "fifo",
		"children/1/children/0/properties/application.sort.policy":   "fifo",
		"children/1/children/0/properties/application.sort.priority": "disabled",
	} {
		if got, has := at(all, place); !has || got != want {
			t.Errorf("%s is %v, want %v", place, got, want)
		}
	}
	for _, place := range []string{
		"template", "quotaPreemptionDelay", "children/1/priorityOffset", "children/0/template",
		"children/0/children", "children/1/properties/priority.offset",
	} {
		if got, has := at(all, place); has {
			t.Errorf("%s is there: %v", place, got)
		}
	}
}

// The order of nodes is that of the queue file, with YuniKorn's default weights.
func TestThePartitionShowsTheOrderOfItsNodes(t *testing.T) {
	for _, c := range []struct {
		sort *plimsoll.NodeSort
		want string
	}{
		{nil, `{"type":"placement","resourceWeights":{}}`},
		{&plimsoll.NodeSort{}, `{"type":"fair","resourceWeights":{"memory":1,"vcore":1}}`},
		{
			&plimsoll.NodeSort{Binpacking: true, Weights: map[string]float64{plimsoll.CPU: 4, "nvidia.com/gpu": 0.5}},
			`{"type":"binpacking","resourceWeights":{"nvidia.com/gpu":0.5,"vcore":4}}`,
		},
	} {
		w := get(rest.New(rest.Config{}, withSettings(t, c.sort)), http.MethodGet, partitions)
		if !strings.Contains(w.Body.String(), `"nodeSortingPolicy":`+c.want) {
			t.Errorf("%+v: %s", c.sort, w.Body)
		}
	}
}
