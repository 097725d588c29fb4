// Sends a body that is refused, again and again, and prints how many answers could not be read.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

type task struct {
	URL     string
	Count   int
	Status  int
	Headers map[string]string
	Body    string
	Bytes   int
}

func isWhole(t task, body []byte) bool {
	request, err := http.NewRequest("POST", t.URL, bytes.NewReader(body))
	if err != nil {
		return false
	}
	for name, value := range t.Headers {
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var problem struct{ Status int }
	err = json.NewDecoder(answer.Body).Decode(&problem)
	return err == nil && answer.StatusCode == t.Status && problem.Status == t.Status
}

func main() {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		panic(err)
	}
	body := append([]byte(t.Body), bytes.Repeat([]byte(" "), t.Bytes-len(t.Body))...)
	cut := 0
	for n := 0; n < t.Count; n++ {
		if !isWhole(t, body) {
			cut++
		}
	}
	fmt.Println(cut)
}
