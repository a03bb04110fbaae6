package ckpt.spark.wire

import java.io.{FileInputStream, IOException, InputStream, OutputStream}
import java.net.{InetSocketAddress, StandardProtocolFamily, StandardSocketOptions, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.nio.file.Path
import java.security.{GeneralSecurityException, KeyStore}
import java.security.cert.CertificateFactory
import javax.net.ssl.{SSLContext, SSLSocket, TrustManagerFactory}

import scala.jdk.CollectionConverters._

/** Where a sidecar answers, and the token that it asks for. */
sealed trait Endpoint {
  def token: String
}

/** A unix socket of this host. It needs no token: the sidecar asks the operating system for the user that connects. */
final case class UnixEndpoint(path: Path) extends Endpoint {
  override def token: String = ""
  override def toString: String = path.toString
}

/** A sidecar that runs already; with a file of certificates, over TLS if one of these signed the server's. */
final case class TcpEndpoint(host: String, port: Int, token: String, caFile: Option[String]) extends Endpoint {
  override def toString: String = s"$host:$port"
}

/** Bytes to and from a sidecar. A wait ends when its thread is interrupted or another thread closes the wire. */
final class Wire(endpoint: Endpoint) {
  private val channel = endpoint match {
    case _: UnixEndpoint => SocketChannel.open(StandardProtocolFamily.UNIX)
    case _: TcpEndpoint => SocketChannel.open()
  }
  private var in: InputStream = _
  private var out: OutputStream = _

  def connect(): Unit = endpoint match {
    case unix: UnixEndpoint => channel.connect(UnixDomainSocketAddress.of(unix.path))
    case tcp: TcpEndpoint =>
      val address = new InetSocketAddress(tcp.host, tcp.port)
      if (address.isUnresolved) throw new IOException(s"there is no host ${tcp.host}")
      channel.setOption[java.lang.Boolean](StandardSocketOptions.TCP_NODELAY, true)
      channel.setOption[java.lang.Boolean](StandardSocketOptions.SO_KEEPALIVE, true)
      channel.connect(address)
      tcp.caFile.foreach(startTls(tcp, _))
  }

  /** Reads some bytes; negative at the end. */
  def read(into: ByteBuffer): Int =
    if (in == null) channel.read(into)
    else {
      val count = in.read(into.array, into.arrayOffset + into.position(), into.remaining)
      if (count > 0) into.position(into.position() + count)
      count
    }

  def write(from: ByteBuffer): Unit =
    if (out == null) while (from.hasRemaining) channel.write(from)
    else {
      out.write(from.array, from.arrayOffset + from.position(), from.remaining)
      from.position(from.limit())
    }

  def isOpen: Boolean = channel.isOpen

  /** Without a goodbye of TLS, for which a closing thread might wait. */
  def close(): Unit = channel.close()

  private def startTls(tcp: TcpEndpoint, caFile: String): Unit = {
    // The streams of a channel's socket stop when a thread is interrupted, which those of other sockets do not.
    val secured = Wire.trusting(caFile).getSocketFactory.createSocket(channel.socket(), tcp.host, tcp.port, true)
    secured match {
      case socket: SSLSocket =>
        val parameters = socket.getSSLParameters
        parameters.setEndpointIdentificationAlgorithm("HTTPS") // the certificate has to name the host
        socket.setSSLParameters(parameters)
        socket.startHandshake()
        in = socket.getInputStream
        out = socket.getOutputStream
      case other => throw new IOException(s"no TLS, but a ${other.getClass.getName}")
    }
  }
}

object Wire {

  /** A context that trusts the certificates of a PEM file, and no others. */
  private def trusting(caFile: String): SSLContext =
    try {
      val store = KeyStore.getInstance(KeyStore.getDefaultType)
      store.load(null, null)
      val file = new FileInputStream(caFile)
      try {
        val certificates = CertificateFactory.getInstance("X.509").generateCertificates(file).asScala
        if (certificates.isEmpty) throw new IOException("it holds no certificate")
        for ((certificate, n) <- certificates.zipWithIndex) store.setCertificateEntry(s"ca-$n", certificate)
      } finally file.close()
      val trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm)
      trust.init(store)
      val context = SSLContext.getInstance("TLS")
      context.init(null, trust.getTrustManagers, null)
      context
    } catch {
      case e @ (_: IOException | _: GeneralSecurityException) =>
        throw new IOException(s"cannot use $caFile of ${Settings.CaFile}: ${e.getMessage}; it is to be a PEM file " +
          "with the certificate of a CA, at the same place on every executor", e)
    }
}
