package transport_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// overPipes serves in a bubble and gives the test a client of each protocol.
func overPipes(
	t *testing.T, handler func(cut chan<- string) http.Handler,
	test func(t *testing.T, client *http.Client, cut <-chan string),
) {
	t.Helper()
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				network, cut := newPipes(), make(chan string, 10)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- transport.Serve(ctx, network, handler(cut), transport.ServeConfig{}) }()
				protocols := new(http.Protocols)
				set(protocols)
				carrier := &http.Transport{Protocols: protocols, DialContext: func(
					context.Context, string, string,
				) (net.Conn, error) {
					return network.dial(), nil
				}}
				test(t, &http.Client{Transport: carrier}, cut)
				carrier.CloseIdleConnections()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAStreamThatNobodyReadsIsCutAfterAMinute(t *testing.T) {
	var ended time.Time
	endless := func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 64<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				ended = time.Now()
				return
			}
		}
	}
	overPipes(t, func(cut chan<- string) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{
			Stream: func(*http.Request) bool { return true },
			Cut:    func(r *http.Request) { cut <- r.URL.Path },
		}, http.HandlerFunc(endless))
	}, func(t *testing.T, client *http.Client, cut <-chan string) {
		began := time.Now()
		resp, err := client.Get("http://x/logs")
		if err != nil {
			t.Fatal(err)
		}
		if got := <-cut; got != "/logs" {
			t.Errorf("the stream %q was cut", got)
		}
		synctest.Wait()
		if took := ended.Sub(began); took < time.Minute || took > 61*time.Second {
			t.Errorf("it was cut after %s", took)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Error("the caller took what came for the whole")
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAStreamThatIsQuietOrSlowlyReadIsNotCut(t *testing.T) {
	overPipes(t, func(cut chan<- string) http.Handler {
		return transport.TimeAnswers(transport.AnswerConfig{
			Stream: func(*http.Request) bool { return true },
			Cut:    func(r *http.Request) { cut <- r.URL.Path },
		}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = w.Write(make([]byte, 1<<20)) // the caller sees what is missing
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour) // of the bubble
			}
		}))
	}, func(t *testing.T, client *http.Client, cut <-chan string) {
		resp, err := client.Get("http://x/logs")
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		piece := make([]byte, 64<<10)
		for {
			n, err := io.ReadFull(resp.Body, piece)
			got += n
			if err != nil {
				break
			}
			time.Sleep(50 * time.Second) // of the bubble
		}
		if got != 3<<20 || len(cut) > 0 {
			t.Errorf("%d bytes came, and %d streams were cut", got, len(cut))
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Many requests on one connection of HTTP/2 that never come to their end.
func TestABodyThatStopsIsCutOffInBothProtocols(t *testing.T) {
	overPipes(t, func(cut chan<- string) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			cut <- err.Error()
		})
	}, func(t *testing.T, client *http.Client, cut <-chan string) {
		began := time.Now()
		for range 10 {
			body, send := io.Pipe()
			go func() {
				if _, err := send.Write([]byte("half")); err == nil {
					<-t.Context().Done()
				}
				_ = send.Close() // the other end does not read any more
			}()
			go func() {
				if resp, err := client.Post("http://x/", "text/plain", body); err == nil {
					_ = resp.Body.Close() // nothing of it is wanted
				}
				_ = body.Close() // for the goroutine above
			}()
		}
		for range 10 {
			<-cut
		}
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("the last was cut off after %s", took)
		}
	})
}
