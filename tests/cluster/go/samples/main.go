// Programs for test Pods in one image: `samples SERVER`.
//
//	echo        answers HTTP with who was asked and by whom
//	webhook     a validating webhook that refuses what is labelled so
//	aggregated  an aggregated API with one resource, which tells the caller's name
//	devices     a device plugin whose devices are directories, each for the one container that has it
//
// `samples ask NETWORK ADDRESS TEXT` is a client: it sends the text by `tcp` or `udp` and prints what comes back first.
//
// Servers with TLS read tls.crt, tls.key and, where clients have to show a certificate, client-ca.crt from /tls.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

const usage = "usage: samples echo|webhook|aggregated|devices, or samples ask tcp|udp ADDRESS TEXT"

func main() {
	if len(os.Args) == 5 && os.Args[1] == "ask" {
		if err := ask(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) != 2 {
		log.Fatal(usage)
	}
	log.Fatal(serve(os.Args[1]))
}

func serve(server string) error {
	switch server {
	case "echo":
		return http.ListenAndServe(":8080", http.HandlerFunc(echo))
	case "webhook":
		return serveTLS(http.HandlerFunc(review), nil)
	case "aggregated":
		clients, err := os.ReadFile("/tls/client-ca.crt")
		if err != nil {
			return err
		}
		return serveTLS(aggregated(), clients)
	case "devices":
		return serveDevices()
	default:
		return errors.New(usage)
	}
}

func serveTLS(handler http.Handler, clients []byte) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if clients != nil {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(clients) {
			return errors.New("/tls/client-ca.crt holds no certificate")
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	server := &http.Server{Addr: ":8443", Handler: handler, TLSConfig: config}
	return server.ListenAndServeTLS("/tls/tls.crt", "/tls/tls.key")
}

func echo(response http.ResponseWriter, request *http.Request) {
	host, _ := os.Hostname()
	answer(response, map[string]string{"host": host, "from": request.RemoteAddr, "path": request.URL.Path})
}

func ask(network, address, text string) error {
	connection, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte(text)); err != nil {
		return err
	}
	answer := make([]byte, 2048)
	length, err := connection.Read(answer)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(answer[:length])
	return err
}

func answer(response http.ResponseWriter, body any) {
	response.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(response).Encode(body); err != nil {
		log.Print(err)
	}
}
