// Programs for test Pods in one image: `samples SERVER`.
//
//	echo        answers HTTP with who was asked and by whom
//	webhook     a validating webhook that refuses what is labelled so
//	aggregated  an aggregated API with one resource, which tells the caller's name
//	devices     a device plugin whose devices are directories, each for the one container that has it
//
// Servers with TLS read tls.crt, tls.key and, where clients have to show a certificate, client-ca.crt from /tls.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
)

const usage = "usage: samples echo|webhook|aggregated|devices"

func main() {
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

func answer(response http.ResponseWriter, body any) {
	response.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(response).Encode(body); err != nil {
		log.Print(err)
	}
}
